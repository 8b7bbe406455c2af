/* Starts a program of the Lambda layer with the layer's own C library.
 *
 * Promises: it is linked statically, so it runs on any Linux of this processor, with any C library or none. The program's libraries come from the
 * layer only. The environment of its child processes does not mention them, so programs of the system find their own.
 *
 * It has several names: `bootstrap` is `hearth lambda`, `php` is the layer's php8.x; any other is the program of that name in ROOT/libexec. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <unistd.h>

#define ROOT "/opt"
#define LOADER ROOT "/lib/ld.so"
/* The folder that the layer's PHP programs read instead of their compiled-in one (php.net, "Scan directories"). */
#define INI_FOLDERS ROOT "/etc/php/conf.d:" ROOT "/etc/php/cli.d"

/* PATH with the layer's programs at its end, because a container image does not have them. Owned; NULL without memory. */
static char *path_with_layer(void) {
    const char *before = getenv("PATH");
    if (before == NULL || *before == '\0') {
        before = "/usr/local/bin:/usr/bin:/bin";
    }
    size_t size = strlen(before) + sizeof ":" ROOT "/bin";
    char *path = malloc(size);
    if (path != NULL) {
        snprintf(path, size, "%s%s", before, strstr(before, ROOT "/bin") ? "" : ":" ROOT "/bin");
    }
    return path;
}

/* PHP_INI_SCAN_DIR with the layer's folders in place of each empty part, as PHP itself does with its compiled-in folder. Owned; NULL without memory. */
static char *ini_folders(void) {
    const char *before = getenv("PHP_INI_SCAN_DIR");
    if (before == NULL) {
        before = "";
    }
    size_t parts = 1;
    for (const char *at = before; *at != '\0'; at++) {
        parts += *at == ':';
    }
    char *folders = malloc(strlen(before) + parts * sizeof INI_FOLDERS);
    char *end = folders;
    while (folders != NULL) {
        size_t length = strcspn(before, ":");
        if (length == 0) {
            end = stpcpy(end, INI_FOLDERS);
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
    const char *path = (const char *)getauxval(AT_EXECFN);
    const char *slash = strrchr(path, '/');
    const char *name = slash == NULL ? path : slash + 1;
    int is_bootstrap = strcmp(name, "bootstrap") == 0;

    char *search = path_with_layer();
    if (search != NULL) {
        setenv("PATH", search, 1);
    }
    /* A variable that is set already is kept. */
    setenv("HEARTH_LIB_DIR", ROOT "/bin", 0);
    setenv("HEARTH_INI_DIR", ROOT "/etc/php", 0);
    setenv("SSL_CERT_FILE", ROOT "/etc/ca-certificates.crt", 0);
    if (strncmp(name, "php", 3) == 0) {
        char *folders = ini_folders();
        setenv("PHPRC", ROOT "/etc/php", 0);
        if (folders != NULL) {
            setenv("PHP_INI_SCAN_DIR", folders, 1);
        }
    }

    const char *file = name;
    if (is_bootstrap) {
        file = "hearth";
    } else if (strcmp(name, "php") == 0) {
        file = "php" PHP_MINOR;
    }
    char program[256];
    int length = snprintf(program, sizeof program, ROOT "/libexec/%s", file);
    /* The loader, five words for it, `lambda`, and the NULL behind the arguments. */
    char **words = calloc((size_t)argc + 8, sizeof *words);
    if (length < 0 || (size_t)length >= sizeof program || words == NULL || argc < 1) {
        fprintf(stderr, "%s: cannot be started\n", path);
        return 126;
    }
    size_t count = 0;
    /* --argv0 exists since glibc 2.33. */
    char *const loader[] = {LOADER, "--library-path", ROOT "/lib", "--argv0", argv[0], program};
    for (size_t i = 0; i < sizeof loader / sizeof *loader; i++) {
        words[count++] = loader[i];
    }
    if (is_bootstrap) {
        words[count++] = "lambda";
    }
    for (int i = 1; i < argc; i++) {
        words[count++] = argv[i];
    }
    execv(LOADER, words);
    fprintf(stderr, "%s: cannot run %s with %s: %s\n", path, program, LOADER, strerror(errno));
    return 126;
}
