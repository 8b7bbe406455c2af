/* See user_ini.h. sapi_cgi_activate() of sapi/fpm/fpm/fpm_main.c decides the order and the directories. */
#include "sapi/request/user_ini.h"

#include <SAPI.h>
#include <limits.h>
#include <php.h>
#include <php_ini.h>
#include <stdbool.h>
#include <string.h>

/* More directories than this are forgotten together: URLs must not fill the memory. */
enum { DIRECTORIES = 1024 };

struct place {
    time_t expires;
    HashTable settings;
};

static HashTable places; /* directory of a script -> struct place */
static bool ready;

static void free_place(zval *value) {
    struct place *place = Z_PTR_P(value);
    zend_hash_destroy(&place->settings);
    free(place);
}

/* Reads the files from the document root down to `directory`; outside of it, only the one there. Both end with a slash. */
static void read_files(HashTable *settings, char *directory, const char *root) {
    const char *file = PG(user_ini_filename);
    size_t root_len = root != NULL ? strlen(root) : 0;
    while (root_len > 0 && root[root_len - 1] == '/') {
        root_len--;
    }
    if (root_len == 0 || strncmp(directory, root, root_len) != 0 || directory[root_len] != '/') {
        php_parse_user_ini_file(directory, file, settings);
        return;
    }
    for (char *slash = directory + root_len; slash != NULL; slash = strchr(slash + 1, '/')) {
        char kept = slash[1];
        slash[1] = '\0';
        php_parse_user_ini_file(directory, file, settings);
        slash[1] = kept;
    }
}

static HashTable *settings_of(char *directory, size_t len, const char *root) {
    if (!ready) {
        zend_hash_init(&places, 8, NULL, free_place, 1);
        ready = true;
    }
    time_t now = (time_t)sapi_get_request_time();
    struct place *place = zend_hash_str_find_ptr(&places, directory, len);
    if (place != NULL && now <= place->expires) {
        return &place->settings;
    }
    if (place != NULL) {
        zend_hash_clean(&place->settings);
    } else {
        if (zend_hash_num_elements(&places) >= DIRECTORIES) {
            zend_hash_clean(&places);
        }
        place = pemalloc(sizeof *place, 1);
        zend_hash_init(&place->settings, 8, NULL, config_zval_dtor, 1);
        zend_hash_str_update_ptr(&places, directory, len, place);
    }
    read_files(&place->settings, directory, root);
    place->expires = now + PG(user_ini_cache_ttl);
    return &place->settings;
}

void user_ini_activate(const char *script, const char *document_root, const char *server_name) {
    if (server_name != NULL && php_ini_has_per_host_config()) {
        char *name = zend_str_tolower_dup(server_name, strlen(server_name));
        php_ini_activate_per_host_config(name, strlen(name));
        efree(name);
    }
    bool files = PG(user_ini_filename) != NULL && PG(user_ini_filename)[0] != '\0';
    if (script == NULL || (!files && !php_ini_has_per_dir_config())) {
        return;
    }
    const char *slash = strrchr(script, '/');
    if (slash == NULL || slash - script >= PATH_MAX) {
        return;
    }
    char directory[PATH_MAX + 1];
    size_t len = (size_t)(slash - script) + 1;
    memcpy(directory, script, len);
    directory[len] = '\0';
    if (php_ini_has_per_dir_config()) {
        php_ini_activate_per_dir_config(directory, len);
    }
    if (files) {
        HashTable *settings = settings_of(directory, len, document_root);
        if (zend_hash_num_elements(settings) > 0) {
            php_ini_activate_config(settings, PHP_INI_PERDIR, PHP_INI_STAGE_HTACCESS);
        }
    }
}
