/* Cases: the C library's state of a process. */
#include <dirent.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <features.h>
#include <iconv.h>
#include <locale.h>
#include <pthread.h>
#include <pwd.h>
#include <regex.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "snapshot.h"

extern char **environ;

static void change_locale(unsigned n) {
    check(setlocale(LC_ALL, n % 2 == 0 ? "C.UTF-8" : "POSIX") != NULL, "setlocale()");
    if (n % 3 == 0) {
        uselocale(newlocale(LC_ALL_MASK, "C.UTF-8", NULL));
    }
}
static void verify_locale(void) {
    check(strcmp(setlocale(LC_ALL, NULL), "C") == 0, "the locale is %s", setlocale(LC_ALL, NULL));
    check(uselocale(NULL) == LC_GLOBAL_LOCALE, "the thread's locale");
}

static void boot_environment(void) {
    setenv("FROM_BOOT", "boot", 1);
    setenv("TZ", "UTC", 1);
    tzset();
}
static void change_environment(unsigned n) {
    static char assignment[] = "FROM_REQUEST=1";
    setenv("FROM_BOOT", "request", 1);
    unsetenv("PATH");
    putenv(assignment);
    setenv("TZ", n % 2 == 0 ? "Asia/Tokyo" : "XYZ5", 1);
    tzset();
    for (unsigned i = 0; i < 200; i++) {
        char name[32];
        snprintf(name, sizeof name, "MANY_%u_%u", i, n);
        setenv(name, "x", 1);
    }
    if (n % 4 == 3) {
        clearenv();
    }
}
static void verify_environment(void) {
    const char *from_boot = getenv("FROM_BOOT");
    check(from_boot != NULL && strcmp(from_boot, "boot") == 0, "FROM_BOOT is %s",
        from_boot != NULL ? from_boot : "gone");
    check(getenv("FROM_REQUEST") == NULL && getenv("MANY_0_0") == NULL,
        "a request's variable is left");
    check(timezone == 0 && strcmp(tzname[0], "UTC") == 0, "the time zone is %s", tzname[0]);
}

/* The generator's state is memory like any other. */
static void draw_pseudo_random(unsigned n) {
    int *drawn = (int *)(void *)board->scratch;
    int value = rand() ^ (int)random() ^ (int)lrand48();
    if (n == 0) {
        *drawn = value;
    }
    check(*drawn == value, "rand() continues where a request left it");
}

static void draw_entropy(unsigned n) {
    unsigned char(*drawn)[16] = (void *)board->scratch;
    if (n % 2 == 0) {
        check(getrandom(drawn[2 * n], 16, 0) == 16, "getrandom()");
    } else {
        check(getentropy(drawn[2 * n], 16) == 0, "getentropy()");
    }
#if __GLIBC_PREREQ(2, 36)
    arc4random_buf(drawn[2 * n + 1], 16);
#else
    raw(SYS_getrandom, (long)drawn[2 * n + 1], 16, 0, 0, 0, 0);
#endif
    for (unsigned i = 0; i < 2 * n; i++) {
        check(
            memcmp(drawn[i], drawn[2 * n], 16) != 0 && memcmp(drawn[i], drawn[2 * n + 1], 16) != 0,
            "random bytes repeat");
    }
}

static FILE *boot_file;
static void boot_stream(void) {
    boot_file = tmpfile();
    fputs("buffered by the boot", boot_file);
}
static void write_stream(unsigned n) {
    fprintf(boot_file, "buffered by request %u", n);
    if (n % 2 == 1) {
        fflush(boot_file);
        rewind(boot_file);
    }
    FILE *own = fopen("/etc/passwd", "r");
    char line[200];
    check(own != NULL && fgets(line, sizeof line, own) != NULL, "a stream");
    fprintf(stderr, "%s", "");
}
static void verify_stream(void) {
    check(ftell(boot_file) == 20, "the stream is at %ld", ftell(boot_file));
}

static void load_library(unsigned n) {
    static const char *const names[] = {
        "libresolv.so.2", "libcrypt.so.1", "libnss_files.so.2", "libanl.so.1"};
    void *library = dlopen(names[n % 4], RTLD_NOW | (n % 2 == 0 ? RTLD_GLOBAL : RTLD_DEEPBIND));
    if (library != NULL && n % 3 == 0) {
        dlclose(library);
    }
    void *other = dlmopen(LM_ID_BASE, "libresolv.so.2", RTLD_LAZY);
    check(other != NULL, "dlmopen(): %s", other == NULL ? dlerror() : "");
}
static void *boot_library;
static void boot_load(void) {
    boot_library = dlopen("libresolv.so.2", RTLD_NOW);
    check(boot_library != NULL, "dlopen()");
}
static void unload_boot_library(unsigned n) {
    (void)n;
    dlclose(boot_library);
}

static void convert(unsigned n) {
    iconv_t descriptor = iconv_open(n % 2 == 0 ? "UTF-16" : "KOI8-R", "ISO-8859-15");
    if (descriptor != (iconv_t)-1) {
        char in[] = "text", out[64], *from = in, *to = out;
        size_t in_left = 4, out_left = sizeof out;
        iconv(descriptor, &from, &in_left, &to, &out_left);
    }
}

static void on_exit_function(void) {}
static void destroy_key(void *value) {
    free(value);
}
static void change_much(unsigned n) {
    char text[] = "a,b,c";
    strtok(text, ",");
    getpwnam("root");
    setpwent();
    getpwent();
    time_t now = time(NULL);
    localtime(&now);
    atexit(on_exit_function);
    pthread_key_t key;
    pthread_key_create(&key, destroy_key);
    pthread_setspecific(key, malloc(10));
    pthread_atfork(on_exit_function, on_exit_function, on_exit_function);
    regex_t expression;
    regcomp(&expression, "^(a|b)*c+$", REG_EXTENDED);
    regexec(&expression, "ababcc", 0, NULL, 0);
    opendir("/");
    strerror((int)(1000 + n));
    srand(n);
}

static const struct test_case cases[] = {
    {.name = "the locale", .request = change_locale, .verify = verify_locale},
    {.name = "the environment and the time zone",
        .request = change_environment,
        .flags = ALONE,
        .boot = boot_environment,
        .verify = verify_environment},
    {.name = "rand() is reset", .request = draw_pseudo_random, .flags = ALONE},
    {.name = "getrandom() does not repeat",
        .request = draw_entropy,
        .flags = ALONE | SELDOM,
        .turns = 200},
    {.name = "streams",
        .request = write_stream,
        .flags = ALONE,
        .boot = boot_stream,
        .verify = verify_stream},
    {.name = "libraries are loaded", .request = load_library, .flags = HEAVY},
    {.name = "a boot library is unloaded",
        .request = unload_boot_library,
        .outcome = RETIRES,
        .boot = boot_load},
    {.name = "iconv()", .request = convert, .flags = HEAVY},
    {.name = "strtok(), atexit(), keys and others", .request = change_much},
};
const struct case_list library_cases = CASE_LIST(cases);
