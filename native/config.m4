dnl Builds the extension `hearth` for stock PHP with phpize, and so for PIE: `phpize && ./configure && make` in this folder.
dnl The same sources as `make -C native` compiles into hearth-8.x.so. The worker, which needs libphp, is not built here.

PHP_ARG_ENABLE([hearth],
  [whether to enable Hearth's outgoing calls],
  [AS_HELP_STRING([--disable-hearth], [Leave out the extension hearth])],
  [yes])

if test "$PHP_HEARTH" != "no"; then
  AC_MSG_CHECKING([whether this PHP is 8.2 or newer, without thread safety])
  hearth_php_version=$($PHP_CONFIG --vernum)
  if test "$hearth_php_version" -lt 80200; then
    AC_MSG_ERROR([hearth needs PHP 8.2 or newer, and this is $($PHP_CONFIG --version)])
  fi
  AC_EGREP_CPP([hearth_thread_safe], [
#include "$phpincludedir/main/php_config.h"
#ifdef ZTS
hearth_thread_safe
#endif
  ], [AC_MSG_ERROR([hearth needs PHP without thread safety (NTS), and this PHP is thread-safe])])
  AC_MSG_RESULT([yes])

  dnl Only the header: the extension calls the libcurl that ext-curl has loaded.
  AC_CHECK_HEADER([curl/curl.h], [], [AC_MSG_ERROR([curl/curl.h is missing. On Debian: apt-get install libcurl4-openssl-dev])])

  hearth_version=$(sed -n 's/^ *"version": "\(.*\)",*$/\1/p' "$abs_srcdir/composer.json")
  dnl By a file: quotes in a flag do not survive libtool.
  echo "#define HEARTH_VERSION \"$hearth_version\"" > hearth_version.h
  dnl phpize's Makefile would make hearth_arginfo.h from hearth.stub.php when that is newer, with a parser that it downloads. In a clone and in a copy
  dnl either can be the newer one.
  touch "$abs_srcdir/ext/hearth_arginfo.h" 2>/dev/null || :
  hearth_sources=$(cd "$abs_srcdir" && echo ext/*.c ext/broker/*.c ext/curl/*.c ext/streams/*.c wire/*.c)
  PHP_NEW_EXTENSION([hearth], [$hearth_sources], [$ext_shared],,
    [-std=gnu11 -fsigned-char -D_GNU_SOURCE -I@ext_srcdir@ -include hearth_version.h])
  dnl As in the Makefile: its names are its own, and a missing one is found when PHP starts.
  LDFLAGS="$LDFLAGS -Wl,-Bsymbolic -Wl,-z,now"
fi
