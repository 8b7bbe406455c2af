/* Starts a PHP program of the Lambda layer or of the tarball with the environment that it needs there.
 *
 * Promises: it is linked statically, so it runs on any Linux of this processor, with any C library or none. The program's libraries come from the
 * layer or the tarball only. The environment of its child processes does not mention those libraries, so programs of the system find their own.
 *
 * It has several names, and starts the program of that name; `php` is php8.x. `hearth-worker-8.x` is of the tarball.
 *
 * The layer lies at ROOT. `bootstrap` is `hearth lambda` there, and programs of ROOT/libexec are started with the layer's loader.
 * The tarball lies anywhere: its folder is found by /proc/self/exe, and its programs find their loader themselves (packaging/tarball/loader.c). */
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <unistd.h>

/* What is in the places that this program needs; all static. */
static char ini[PATH_MAX];        /* the folder of php.ini, conf.d and cli.d */
static char bundled_ca[PATH_MAX]; /* certificates */
static char program[PATH_MAX];

/* The path of this program as it was executed. */
static const char *executed(void) {
    const char *path = (const char *)getauxval(AT_EXECFN);
    return path == NULL ? "" : path;
}

static const char *last_part(const char *path) {
    const char *slash = strrchr(path, '/');
    return slash == NULL ? path : slash + 1;
}

static void join(char *to, const char *folder, const char *between, const char *name) {
    if (snprintf(to, PATH_MAX, "%s%s%s", folder, between, name) >= PATH_MAX) {
        fprintf(stderr, "%s: the path of its folder is too long\n", executed());
        exit(126);
    }
}

#ifdef ROOT

#define LOADER ROOT "/lib/ld.so"

static const char *own_path(void) {
    return executed();
}

static void find_places(const char *name) {
    join(ini, ROOT, "/etc/php", "");
    join(bundled_ca, ROOT, "/etc/ca-certificates.crt", "");
    join(program, ROOT, "/libexec/", name);
}

/* PATH with the layer's programs at its end, because a container image does not have them. */
static void extend_path(void) {
    const char *before = getenv("PATH");
    if (before == NULL || *before == '\0') {
        before = "/usr/local/bin:/usr/bin:/bin";
    }
    size_t size = strlen(before) + sizeof ":" ROOT "/bin";
    char *path = malloc(size);
    if (path != NULL) {
        snprintf(path, size, "%s%s", before, strstr(before, ROOT "/bin") ? "" : ":" ROOT "/bin");
        setenv("PATH", path, 1);
    }
}

static void set_environment(void) {
    extend_path();
    /* A variable that is set already is kept. */
    setenv("HEARTH_LIB_DIR", ROOT "/bin", 0);
    setenv("HEARTH_INI_DIR", ini, 0);
    setenv("SSL_CERT_FILE", bundled_ca, 0);
}

/* --argv0 exists since glibc 2.33. */
static size_t put_loader(char **words, char *argv0) {
    char *const loader[] = {LOADER, "--library-path", ROOT "/lib", "--argv0", argv0, program};
    memcpy(words, loader, sizeof loader);
    return sizeof loader / sizeof *loader;
}

#else

#define LOADER program

/* The files in which systems keep their authorities, as in crates/egress/src/tls.rs. */
static const char *const system_ca[] = {"/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem", "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/ca-bundle.pem", "/etc/ssl/cert.pem"};

static char character_sets[PATH_MAX]; /* gconv modules of the tarball's C library */

/* Behind all links: they may have other names. */
static const char *own_path(void) {
    static char path[PATH_MAX];
    ssize_t length = readlink("/proc/self/exe", path, sizeof path - 1);
    return length > 0 ? path : executed();
}

/* This file is lib/hearth/hearth-worker-8.x, or bin/NAME. */
static void find_places(const char *name) {
    char folder[PATH_MAX];
    join(folder, own_path(), "", "");
    char *slash = strrchr(folder, '/');
    if (slash != NULL) {
        *slash = '\0';
    }
    char base[PATH_MAX];
    join(base, folder, strncmp(name, "php", 3) == 0 ? "/../lib/hearth" : "", "");
    const char *version = strpbrk(name, "0123456789");
    char of_version[PATH_MAX];
    join(of_version, base, "/", version == NULL ? PHP_MINOR : version);
    join(ini, of_version, "/etc", "");
    join(program, of_version, "/", name);
    join(bundled_ca, base, "/runtime/ca-certificates.crt", "");
    join(character_sets, base, "/runtime/gconv", "");
}

static void set_environment(void) {
    const char *ca = bundled_ca;
    for (size_t i = sizeof system_ca / sizeof *system_ca; i-- > 0;) {
        ca = access(system_ca[i], R_OK) == 0 ? system_ca[i] : ca;
    }
    setenv("SSL_CERT_FILE", ca, 0);
    setenv("GCONV_PATH", character_sets, 0);
    setenv("HEARTH_INI_DIR", ini, 0);
}

static size_t put_loader(char **words, char *argv0) {
    words[0] = argv0;
    return 1;
}

#endif

/* PHP_INI_SCAN_DIR with these folders in place of each empty part, as PHP itself does with its compiled-in folder. Owned; NULL without memory. */
static char *ini_folders(void) {
    const char *before = getenv("PHP_INI_SCAN_DIR");
    if (before == NULL) {
        before = "";
    }
    size_t parts = 1;
    for (const char *at = before; *at != '\0'; at++) {
        parts += *at == ':';
    }
    size_t ours = 2 * strlen(ini) + sizeof "/conf.d:/cli.d";
    char *folders = malloc(strlen(before) + parts * ours);
    char *end = folders;
    while (folders != NULL) {
        size_t length = strcspn(before, ":");
        if (length == 0) {
            end += snprintf(end, ours, "%s/conf.d:%s/cli.d", ini, ini);
        } else {
            end = (char *)memcpy(end, before, length) + length;
        }
        before += length;
        if (*before == '\0') {
            *end = '\0';
            break;
        }
        *end++ = *before++;
    }
    return folders;
}

int main(int argc, char **argv) {
    const char *name = last_part(own_path());
    int is_bootstrap = strcmp(name, "bootstrap") == 0;
    int is_php = strncmp(name, "php", 3) == 0;
    if (is_bootstrap) {
        name = "hearth";
    } else if (strcmp(name, "php") == 0) {
        name = "php" PHP_MINOR;
    }
    find_places(name);
    set_environment();
    if (is_php) {
        char *folders = ini_folders();
        setenv("HEARTH_INI_DIR", ini, 1);
        setenv("PHPRC", ini, 1);
        if (folders != NULL) {
            setenv("PHP_INI_SCAN_DIR", folders, 1);
        }
    }
    /* The loader, five words for it, `lambda`, and the NULL behind the arguments. */
    char **words = calloc((size_t)argc + 8, sizeof *words);
    if (words == NULL || argc < 1) {
        fprintf(stderr, "%s: cannot be started\n", executed());
        return 126;
    }
    size_t count = put_loader(words, argv[0]);
    if (is_bootstrap) {
        words[count++] = "lambda";
    }
    for (int i = 1; i < argc; i++) {
        words[count++] = argv[i];
    }
    execv(LOADER, words);
    fprintf(stderr, "%s: cannot run %s: %s\n", executed(), program, strerror(errno));
    return 126;
}
