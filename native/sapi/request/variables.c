/* See variables.h. */
#include "sapi/request/variables.h"

#include <SAPI.h>
#include <php_variables.h>
#include <zend_compile.h>
#include <zend_hash.h>
#include <zend_ini.h>

#include "sapi/request/request.h"

extern char **environ;

/* The environment at the start: entries by the addresses of their `NAME=value`, and the resulting table. PHP's own putenv() and
 * setenv() never change such a string in place, so an unchanged address means an unchanged variable. */
static char **first_environ;
static size_t first_count;
static HashTable first_table;
static HashTable script_table; /* with what only worker scripts find in $_SERVER */
static HashTable added;        /* and what these have added */
static const char *const of_scripts[] = {"FRANKENPHP_WORKER", "HEARTH_WORKER"};

/* Names that requests bring: their hash is computed once. The first are in the order in which the server writes them
 * (crates/pool/src/variables.rs), so that most are found without computing it for the look-up. */
static const char *const known_names[] = {"SCRIPT_FILENAME", "QUERY_STRING", "REQUEST_METHOD",
    "CONTENT_TYPE", "CONTENT_LENGTH", "SCRIPT_NAME", "REQUEST_URI", "PATH_INFO", "PATH_TRANSLATED",
    "DOCUMENT_URI", "DOCUMENT_ROOT", "SERVER_PROTOCOL", "REQUEST_SCHEME", "HTTPS",
    "GATEWAY_INTERFACE", "SERVER_SOFTWARE", "REMOTE_ADDR", "REMOTE_PORT", "REMOTE_USER",
    "SERVER_ADDR", "SERVER_PORT", "SERVER_NAME", "REDIRECT_STATUS", "HEARTH_REQUEST_ID",
    "HTTP_HOST", "HTTP_USER_AGENT", "HTTP_ACCEPT", "HTTP_ACCEPT_ENCODING", "HTTP_ACCEPT_LANGUAGE",
    "HTTP_AUTHORIZATION", "HTTP_CACHE_CONTROL", "HTTP_CONNECTION", "HTTP_CONTENT_LENGTH",
    "HTTP_CONTENT_TYPE", "HTTP_COOKIE", "HTTP_DNT", "HTTP_IF_MODIFIED_SINCE", "HTTP_IF_NONE_MATCH",
    "HTTP_ORIGIN", "HTTP_PRAGMA", "HTTP_PRIORITY", "HTTP_REFERER", "HTTP_SEC_CH_UA",
    "HTTP_SEC_CH_UA_MOBILE", "HTTP_SEC_CH_UA_PLATFORM", "HTTP_SEC_FETCH_DEST",
    "HTTP_SEC_FETCH_MODE", "HTTP_SEC_FETCH_SITE", "HTTP_SEC_FETCH_USER", "HTTP_TE",
    "HTTP_TRACEPARENT", "HTTP_UPGRADE_INSECURE_REQUESTS", "HTTP_X_CSRF_TOKEN",
    "HTTP_X_FORWARDED_FOR", "HTTP_X_FORWARDED_HOST", "HTTP_X_FORWARDED_PORT",
    "HTTP_X_FORWARDED_PROTO", "HTTP_X_REAL_IP", "HTTP_X_REQUESTED_WITH", "HTTP_X_REQUEST_ID",
    "HTTP_X_XSRF_TOKEN", "PHP_SELF"};
enum { KNOWN = sizeof known_names / sizeof *known_names, OPTIONAL = 2 };
static zend_string *known_strings[KNOWN];
static HashTable known;

static const char *own_script;
static const char *entry_root; /* own_script is a script of the application below this folder */

static void (*engine_import)(zval *array);

/* The engine's import of $_SERVER, and whether ext/filter must still get the request's variables; see import_server(). */
static zend_auto_global_callback engine_import_server;
static bool filter_waits;

/* A string that outlives all requests and is never counted, as the engine's interned ones. Owned by the process. */
static zend_string *permanent_string(const char *text, size_t len) {
    zend_string *string = zend_string_init(text, len, 1);
    zend_string_hash_val(string);
    GC_ADD_FLAGS(string, IS_STR_INTERNED | IS_STR_PERMANENT);
    return string;
}

/* Returns whether php_register_variable_ex() would use the name unchanged: no array syntax, nothing to mangle, no number. */
static bool is_plain(const char *name, size_t len) {
    for (size_t i = 0; i < len; i++) {
        char c = name[i];
        if (!((c >= 'A' && c <= 'Z') || c == '_' || (c >= 'a' && c <= 'z') ||
                (i > 0 && c >= '0' && c <= '9'))) {
            return false;
        }
    }
    return len > 0;
}

/* What _php_import_environment_variables() of main/php_variables.c does with each entry; false: it skips this one. */
static bool split(const char *entry, size_t *name_len) {
    const char *equals = strchr(entry, '=');
    if (equals == NULL || equals == entry) {
        return false;
    }
    *name_len = (size_t)(equals - entry);
    return strcspn(entry, " .[") > *name_len;
}

static void add_environment(HashTable *table) {
    for (size_t i = 0; i < first_count; i++) {
        size_t name_len;
        if (!split(first_environ[i], &name_len)) {
            continue;
        }
        const char *text = first_environ[i] + name_len + 1;
        zval value;
        zend_ulong index;
        ZVAL_INTERNED_STR(&value, permanent_string(text, strlen(text)));
        if (ZEND_HANDLE_NUMERIC_STR(first_environ[i], name_len, index)) {
            zend_hash_index_update(table, index, &value);
        } else {
            zend_hash_update(table, permanent_string(first_environ[i], name_len), &value);
        }
    }
}

/* Fills a table with the environment, and makes room for a request's variables, so that a copy does not grow. */
static void start_table(HashTable *table) {
    zend_hash_init(table, first_count + 64, NULL, NULL, 1);
    zend_hash_real_init_mixed(table);
    add_environment(table);
}

static bool environment_is_unchanged(void) {
    size_t i = 0;
    for (; environ[i] != NULL; i++) {
        if (i == first_count || environ[i] != first_environ[i]) {
            return false;
        }
    }
    return i == first_count;
}

/* Returns whether the array became a copy of the table, which holds the environment of the start. */
static bool import_table(zval *array, HashTable *table) {
    if (!environment_is_unchanged() || zend_hash_num_elements(Z_ARRVAL_P(array)) != 0) {
        return false;
    }
    zend_array_destroy(Z_ARR_P(array));
    ZVAL_ARR(array, zend_array_dup(table));
    return true;
}

/* Puts the process's environment into an empty array. */
static void import_process(zval *array) {
    if (!import_table(array, &first_table)) {
        engine_import(array);
    }
}

/* The string of a known name, or NULL. `next` is where it stands if the names come in their order, some of them left out. */
static zend_string *find_known(const char *name, size_t name_len, size_t *next) {
    for (size_t i = *next; i < KNOWN && i <= *next + OPTIONAL; i++) {
        if (ZSTR_LEN(known_strings[i]) == name_len &&
            memcmp(ZSTR_VAL(known_strings[i]), name, name_len) == 0) {
            *next = i + 1;
            return known_strings[i];
        }
    }
    return zend_hash_str_find_ptr(&known, name, name_len);
}

static void add_variable(zval *array, const char *name, size_t name_len, const char *text,
    size_t text_len, size_t *next) {
    zend_string *key = find_known(name, name_len, next);
    if (key == NULL && !is_plain(name, name_len)) {
        php_register_variable_safe(name, text, text_len, array);
        return;
    }
    zval value;
    ZVAL_STRINGL_FAST(&value, text, text_len);
    if (key != NULL) {
        zend_hash_update(Z_ARRVAL_P(array), key, &value);
    } else {
        zend_hash_str_update(Z_ARRVAL_P(array), name, name_len, &value);
    }
}

/* Adds a variable that is not one of a request's. */
static void add_other(zval *array, const char *name, const char *text, size_t text_len) {
    size_t next = KNOWN;
    add_variable(array, name, strlen(name), text, text_len, &next);
}

static bool is_proxy(const struct frame_pair *pair) {
    return pair->name_len == 10 && strncasecmp(pair->name, "HTTP_PROXY", 10) == 0;
}

/* Adds the request's variables. `filter`: through ext-filter, which keeps its own copy for filter_input(). */
static void add_request(zval *array, bool filter, int kind) {
    const struct frame_request *head = request_head();
    size_t next = 0;
    bool filtered = filter && sapi_module.input_filter != NULL &&
                    sapi_module.input_filter != php_default_input_filter;
    for (uint16_t i = 0; i < head->count; i++) {
        const struct frame_pair *pair = &head->pairs[i];
        char *value = (char *)pair->value;
        size_t value_len = pair->value_len;
        if (is_proxy(pair)) {
            continue;
        }
        if (!filtered ||
            sapi_module.input_filter(kind, pair->name, &value, value_len, &value_len)) {
            add_variable(array, pair->name, pair->name_len, value, value_len, &next);
        }
    }
}

/* $_SERVER and $_ENV: follows cgi_php_import_environment_variables(), sapi/fpm/fpm/fpm_main.c. */
static void import_environment(zval *array) {
    import_process(array);
    if (request_present() && (own_script == NULL || entry_root != NULL)) {
        bool is_env = Z_TYPE(PG(http_globals)[TRACK_VARS_ENV]) == IS_ARRAY &&
                      Z_ARR_P(array) == Z_ARR(PG(http_globals)[TRACK_VARS_ENV]);
        add_request(array, true, is_env ? PARSE_ENV : PARSE_SERVER);
    }
}

/* getenv() without a name. */
static void load_environment(zval *array) {
    engine_import(array);
    if (request_present()) {
        add_request(array, false, PARSE_SERVER);
    }
}

void variables_set_script(const char *script) {
    own_script = script;
    start_table(&script_table);
    for (size_t i = 0; i < sizeof of_scripts / sizeof *of_scripts; i++) {
        zval one;
        ZVAL_CHAR(&one, '1');
        zend_hash_update(
            &script_table, permanent_string(of_scripts[i], strlen(of_scripts[i])), &one);
    }
}

void variables_add(HashTable *values) {
    if (own_script == NULL || entry_root != NULL) {
        return;
    }
    if (added.arData == NULL) {
        zend_hash_init(&added, zend_hash_num_elements(values), NULL, NULL, 1);
    }
    zend_string *name;
    zval *value;
    ZEND_HASH_FOREACH_STR_KEY_VAL(values, name, value) {
        if (name != NULL && Z_TYPE_P(value) == IS_STRING && !zend_hash_exists(&added, name)) {
            zend_string *key = permanent_string(ZSTR_VAL(name), ZSTR_LEN(name));
            zval text;
            ZVAL_INTERNED_STR(&text, permanent_string(Z_STRVAL_P(value), Z_STRLEN_P(value)));
            zend_hash_add_new(&added, key, &text);
            zend_hash_add(&script_table, key, &text);
        }
    }
    ZEND_HASH_FOREACH_END();
}

void variables_set_entry(const char *script, const char *document_root) {
    own_script = script;
    entry_root = document_root;
}

const char *variables_entry_root(void) {
    return entry_root;
}

char *variables_getenv(const char *name, size_t name_len) {
    return request_variable(name, name_len);
}

static char *script_and_path(size_t *len) {
    const char *script = REQUEST_VARIABLE("SCRIPT_NAME");
    const char *path = REQUEST_VARIABLE("PATH_INFO");
    size_t script_len = script != NULL ? strlen(script) : 0;
    size_t path_len = path != NULL ? strlen(path) : 0;
    char *self = emalloc(script_len + path_len + 1);
    memcpy(self, script != NULL ? script : "", script_len);
    memcpy(self + script_len, path != NULL ? path : "", path_len);
    self[script_len + path_len] = '\0';
    *len = script_len + path_len;
    return self;
}

/* `through_filter`: see add_request(). */
static void add_request_and_self(zval *array, bool through_filter) {
    size_t len;
    char *self = script_and_path(&len);
    char *value = self;
    add_request(array, through_filter, PARSE_SERVER);
    if (!through_filter || sapi_module.input_filter(PARSE_SERVER, "PHP_SELF", &value, len, &len)) {
        add_other(array, "PHP_SELF", value, len);
    }
    efree(self);
}

/* ext/filter's hook copies $_SERVER for filter_input(), and changes values if `filter.default` says so. It registers each variable
 * twice with php_register_variable_ex(): two thirds of all instructions of a small request. filter_input() requests the auto-global
 * first (php_filter_get_storage(), ext/filter/filter.c), so the copy can be made then. */
static bool filter_can_wait(void) {
    const char *filter = zend_ini_string("filter.default", sizeof "filter.default" - 1, 0);
    return PG(auto_globals_jit) &&
           (filter == NULL || filter[0] == '\0' || strcasecmp(filter, "unsafe_raw") == 0);
}

/* The hook adds to $_SERVER as well, which the script may have changed already, so it gets a temporary array. */
static void tell_filter(void) {
    zval *server = &PG(http_globals)[TRACK_VARS_SERVER];
    zval shown;
    ZVAL_COPY_VALUE(&shown, server);
    array_init(server);
    add_request_and_self(server, true);
    zval_ptr_dtor_nogc(server);
    ZVAL_COPY_VALUE(server, &shown);
}

/* The engine's callback for the auto-global $_SERVER. If it is called a second time in a request, it does the work that the first
 * call postponed. */
static bool import_server(zend_string *name) {
    if (filter_waits) {
        filter_waits = false;
        if (request_present()) {
            tell_filter();
        }
        return false;
    }
    return engine_import_server(name) || filter_waits;
}

void variables_begin(void) {
    filter_waits = false;
}

/* What an entry script finds before its first request: those of a plain GET request for it, from this machine. */
static void add_entry(zval *array) {
    size_t root = strlen(entry_root);
    bool below = strncmp(own_script, entry_root, root) == 0 && own_script[root] == '/';
    const char *name = below ? own_script + root : strrchr(own_script, '/');
    static const char index[] = "/index.php";
    size_t len = strlen(name);
    bool is_index = len >= sizeof index - 1 && strcmp(name + len - (sizeof index - 1), index) == 0;
    size_t uri = is_index ? len - (sizeof index - 2) : len;
    const struct {
        const char *name, *value;
        size_t len;
    } of_boot[] = {
        {"SCRIPT_FILENAME", own_script, strlen(own_script)},
        {"QUERY_STRING", "", 0},
        {"REQUEST_METHOD", "GET", 3},
        {"SCRIPT_NAME", name, len},
        {"REQUEST_URI", name, uri},
        {"DOCUMENT_URI", name, len},
        {"DOCUMENT_ROOT", entry_root, root},
        {"SERVER_PROTOCOL", "HTTP/1.1", 8},
        {"REQUEST_SCHEME", "http", 4},
        {"GATEWAY_INTERFACE", "CGI/1.1", 7},
        {"SERVER_SOFTWARE", "hearth", 6},
        {"REMOTE_ADDR", "127.0.0.1", 9},
        {"REMOTE_PORT", "0", 1},
        {"SERVER_ADDR", "127.0.0.1", 9},
        {"SERVER_PORT", "80", 2},
        {"SERVER_NAME", "localhost", 9},
        {"REDIRECT_STATUS", "200", 3},
        {"HTTP_HOST", "localhost", 9},
        {"PHP_SELF", name, len},
    };
    for (size_t i = 0; i < sizeof of_boot / sizeof *of_boot; i++) {
        add_other(array, of_boot[i].name, of_boot[i].value, of_boot[i].len);
    }
}

/* What a worker script finds before its first request: a GET request of no visitor. Code that asks whether it runs for the web finds the
 * method; nothing here says a host, an address or a scheme, which only requests have. Every request brings each of these itself. */
static void add_worker_boot(zval *array) {
    const char *slash = strrchr(own_script, '/');
    const char *name = slash != NULL ? slash : own_script;
    const struct {
        const char *name, *value;
    } of_boot[] = {
        {"SCRIPT_FILENAME", own_script},
        {"QUERY_STRING", ""},
        {"REQUEST_METHOD", "GET"},
        {"SCRIPT_NAME", name},
        {"REQUEST_URI", "/"},
        {"SERVER_PROTOCOL", "HTTP/1.1"},
        {"GATEWAY_INTERFACE", "CGI/1.1"},
        {"SERVER_SOFTWARE", "hearth"},
        {"PHP_SELF", name},
    };
    for (size_t i = 0; i < sizeof of_boot / sizeof *of_boot; i++) {
        add_other(array, of_boot[i].name, of_boot[i].value, strlen(of_boot[i].value));
    }
}

/* sapi_cgi_register_variables() of sapi/fpm/fpm/fpm_main.c */
void variables_register(zval *array) {
    if (own_script == NULL) {
        import_process(array);
    } else if (entry_root != NULL) {
        import_process(array);
    } else if (!import_table(array, &script_table)) {
        engine_import(array);
        for (size_t i = 0; i < sizeof of_scripts / sizeof *of_scripts; i++) {
            add_other(array, of_scripts[i], "1", 1);
        }
        if (added.arData != NULL) {
            zend_hash_merge(Z_ARRVAL_P(array), &added, NULL, false);
        }
    }
    if (!request_present()) {
        if (entry_root != NULL) {
            add_entry(array);
        } else if (own_script != NULL) {
            add_worker_boot(array);
        }
        return;
    }
    bool hooked = sapi_module.input_filter != php_default_input_filter;
    filter_waits = hooked && filter_can_wait();
    add_request_and_self(array, hooked && !filter_waits);
}

void variables_startup(void) {
    while (environ[first_count] != NULL) {
        first_count++;
    }
    first_environ = malloc((first_count + 1) * sizeof *first_environ);
    if (first_environ == NULL) {
        abort();
    }
    memcpy(first_environ, environ, (first_count + 1) * sizeof *first_environ);
    start_table(&first_table);

    zend_hash_init(&known, KNOWN, NULL, NULL, 1);
    for (size_t i = 0; i < KNOWN; i++) {
        zend_string *name = permanent_string(known_names[i], strlen(known_names[i]));
        known_strings[i] = name;
        zend_hash_add_ptr(&known, name, name);
    }

    zend_auto_global *server =
        zend_hash_find_ptr(CG(auto_globals), ZSTR_KNOWN(ZEND_STR_AUTOGLOBAL_SERVER));
    engine_import_server = server->auto_global_callback;
    server->auto_global_callback = import_server;

    engine_import = php_import_environment_variables;
    php_import_environment_variables = import_environment;
    php_load_environment_variables = load_environment;
}
