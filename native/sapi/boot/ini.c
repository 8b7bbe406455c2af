/* See ini.h. */
#include "sapi/boot/ini.h"

#include <limits.h>
#include <php.h>
#include <php_ini.h>
#include <php_ini_builder.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static char scan_variable[PATH_MAX + 32];

/* The directory for php.ini and, below it, conf.d; NULL: the one compiled in. Static: the result. */
static const char *directory(void) {
    static char path[PATH_MAX];
    const char *said = getenv("HEARTH_INI_DIR");
    if (said != NULL && *said != '\0') {
        return said;
    }
    static const char *const names[] = {"hearth", "fpm"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        struct stat entry;
        snprintf(
            path, sizeof path, "/etc/php/%d.%d/%s", PHP_MAJOR_VERSION, PHP_MINOR_VERSION, names[i]);
        if (stat(path, &entry) == 0 && S_ISDIR(entry.st_mode)) {
            return path;
        }
    }
    return NULL;
}

static void set_default(HashTable *table, const char *name, const char *value) {
    zval string;
    ZVAL_NEW_STR(&string, zend_string_init(value, strlen(value), 1));
    zend_hash_str_update(table, name, strlen(name), &string);
}

/* Values of php.ini-production, for settings that would be unsafe or slow without a php.ini. */
static void defaults(HashTable *table) {
    set_default(table, "display_errors", "0");
    set_default(table, "display_startup_errors", "0");
    set_default(table, "log_errors", "1");
    set_default(table, "zend.exception_ignore_args", "1");
    set_default(table, "variables_order", "GPCS");
    set_default(table, "request_order", "GP");
    set_default(table, "register_argc_argv", "0");
    set_default(table, "output_buffering", "4096");
    set_default(table, "opcache.enable", "1");
}

char *ini_of_stdin(void) {
    struct stat file;
    if (fstat(STDIN_FILENO, &file) != 0 || !S_ISREG(file.st_mode)) {
        return NULL;
    }
    size_t size = (size_t)file.st_size;
    char *settings = calloc(1, size + 2);
    size_t got = 0;
    while (settings != NULL && got < size) {
        ssize_t n = pread(STDIN_FILENO, settings + got, size - got, (off_t)got);
        if (n <= 0) {
            free(settings);
            return NULL;
        }
        got += (size_t)n;
    }
    return settings;
}

void ini_prepare(sapi_module_struct *module, const struct options *options) {
    module->ini_defaults = defaults;
    module->php_ini_ignore_cwd = 1;

    const char *base = directory();
    if (base != NULL && getenv("PHPRC") == NULL) {
        char path[PATH_MAX];
        snprintf(path, sizeof path, "%s/php.ini", base);
        if (access(path, R_OK) == 0) {
            module->php_ini_path_override = strdup(path);
        }
    }
    if (base != NULL && getenv("PHP_INI_SCAN_DIR") == NULL) {
        int len = snprintf(scan_variable, sizeof scan_variable, "PHP_INI_SCAN_DIR=%s/conf.d", base);
        if (len > 0 && (size_t)len < sizeof scan_variable) {
            /* the engine keeps a pointer to the value: putenv(), not setenv() */
            putenv(scan_variable);
        }
    }

    struct php_ini_builder entries;
    php_ini_builder_init(&entries);
    for (size_t i = 0; i < options->ini_count; i++) {
        php_ini_builder_define(&entries, options->ini[i]);
    }
    module->ini_entries = php_ini_builder_finish(&entries);
}

void ini_restore_environment(void) {
    if (scan_variable[0] != '\0') {
        unsetenv("PHP_INI_SCAN_DIR");
    }
}
