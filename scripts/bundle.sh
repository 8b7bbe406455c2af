# What the Lambda layer and the tarball have in common: PHP and its libraries, gathered so that they run on any Linux. Sourced after lib.sh, never run.
# shellcheck shell=bash

# The Debian package of each of PHP's programs. `php -S`, php-fpm and php-cgi are models of their own (E, F, H).
declare -rA PHP_PROGRAMS=([php]=cli [php-fpm]=fpm [php-cgi]=cgi)

# bundle_programs MINOR FOLDER: php8.x, php-fpm8.x and php-cgi8.x.
bundle_programs() {
    local name program
    for name in "${!PHP_PROGRAMS[@]}"; do
        program=$(PATH=$PATH:/usr/local/sbin:/usr/sbin command -v "$name$1") || die "$name$1 is missing: \`apt-get install php$1-${PHP_PROGRAMS[$name]}\`"
        install -m 755 "$program" "$2/$name$1"
    done
}

# bundle_extensions CONFIG FOLDER SETTINGS: PHP's extensions and their ini files, as Debian enables them for an embedded PHP, in its order.
bundle_extensions() {
    local extensions minor ini name
    extensions=$("$1" --extension-dir)
    minor=$("$1" --version | cut -d. -f1,2)
    for ini in /etc/php/"$minor"/embed/conf.d/*.ini; do
        name=$(sed -n 's/^ *\(zend_\)\?extension *= *\([a-z0-9_-]*\)\(\.so\)\? *$/\2/p' "$ini" | head -n 1)
        # FFI reaches past PHP, and no application asked for it. Hearth's own comes with the worker.
        if [[ -n $name && $name != ffi && $name != hearth && -f $extensions/$name.so ]]; then
            cp "$extensions/$name.so" "$2/"
            cp "$ini" "$3/"
        fi
    done
}

# bundle_cli_settings FOLDER: what only PHP's own programs read.
bundle_cli_settings() {
    echo 'extension=hearth.so' > "$1/50-hearth.ini"
    # The command line's opcache would be filled again by each command.
    echo 'opcache.enable_cli=0' > "$1/60-opcache.ini"
}

# bundle_libraries FOLDER FILE-OR-FOLDER...: every library that any of these needs, by its SONAME; ldd lists their own dependencies, too. And the loader.
bundle_libraries() {
    local to=$1 name path loader
    shift
    find "$@" -type f -exec ldd {} \; 2>/dev/null | awk '$2 == "=>" && $3 ~ /^\// { print $1, $3 }' | sort -u |
        while read -r name path; do [[ -e $to/$name ]] || cp -L "$path" "$to/$name"; done
    loader=$(ldd "$(command -v bash)" | awk '/ld-linux/ { print $1 }')
    install -m 755 "$(realpath "$loader")" "$to/ld.so"
}

# bundle_libphp CONFIG FOLDER
bundle_libphp() {
    local name
    name=libphp$("$1" --version | cut -d. -f1,2).so
    cp -L "$("$1" --prefix)/lib/$name" "$2/$name"
}

# bundle_zoneinfo FOLDER: the system's time zones.
bundle_zoneinfo() {
    cp -rL /usr/share/zoneinfo "$1"
    rm -rf "$1"/{posix,right}
}

bundle_certificates() { cp -L /etc/ssl/certs/ca-certificates.crt "$1"; }

# Without debug information. The loader keeps its symbols: it does not work without some of them.
bundle_strip() { find "$@" -type f ! -name ld.so -exec strip --strip-unneeded {} + ; }

# dated FOLDER: the same files make the same archive.
dated() { find "$1" -exec touch -h -d "@${SOURCE_DATE_EPOCH:-1700000000}" {} +; }

mb() { awk -v bytes="$1" 'BEGIN { printf "%.1f MB", bytes / 1048576 }'; }
size_of() { find "$1" -type f -printf '%D:%i %s\n' | sort -u | awk '{ sum += $2 } END { print sum }'; }
