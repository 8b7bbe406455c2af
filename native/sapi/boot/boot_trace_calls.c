/* The functions and methods by which PHP code reads what is not its own, and what a call of each reads. See boot_trace.h. */
#include "sapi/boot/boot_trace.h"

#include "ext/compat.h"

#include <zend_smart_str.h>

#define REQUEST "request"
#define CLOCK "clock"
#define RANDOM "randomness"
#define ENVIRONMENT "environment"
#define DATABASE "database"
#define NETWORK "network"
#define FILES "file"

const struct trace_call trace_calls[] = {
    {NULL, "getallheaders", REQUEST, TRACE_NAME},
    {NULL, "apache_request_headers", REQUEST, TRACE_NAME},
    {NULL, "filter_input", REQUEST, TRACE_NAME},
    {NULL, "filter_input_array", REQUEST, TRACE_NAME},
    {NULL, "filter_has_var", REQUEST, TRACE_NAME},
    {NULL, "request_parse_body", REQUEST, TRACE_NAME},
    {NULL, "session_start", REQUEST, TRACE_NAME},

    {NULL, "time", CLOCK, TRACE_NAME},
    {NULL, "microtime", CLOCK, TRACE_NAME},
    {NULL, "hrtime", CLOCK, TRACE_NAME},
    {NULL, "gettimeofday", CLOCK, TRACE_NAME},
    {NULL, "date", CLOCK, TRACE_UNLESS_2},
    {NULL, "gmdate", CLOCK, TRACE_UNLESS_2},
    {NULL, "idate", CLOCK, TRACE_UNLESS_2},
    {NULL, "strftime", CLOCK, TRACE_UNLESS_2},
    {NULL, "gmstrftime", CLOCK, TRACE_UNLESS_2},
    {NULL, "localtime", CLOCK, TRACE_NAME},
    {NULL, "getdate", CLOCK, TRACE_NAME},
    {NULL, "mktime", CLOCK, TRACE_UNLESS_6},
    {NULL, "gmmktime", CLOCK, TRACE_UNLESS_6},
    {NULL, "strtotime", CLOCK, TRACE_DATE},
    {NULL, "date_create", CLOCK, TRACE_DATE},
    {NULL, "date_create_immutable", CLOCK, TRACE_DATE},
    {"datetime", "__construct", CLOCK, TRACE_DATE},
    {"datetimeimmutable", "__construct", CLOCK, TRACE_DATE},

    {NULL, "rand", RANDOM, TRACE_NAME},
    {NULL, "mt_rand", RANDOM, TRACE_NAME},
    {NULL, "random_int", RANDOM, TRACE_NAME},
    {NULL, "random_bytes", RANDOM, TRACE_NAME},
    {NULL, "uniqid", RANDOM, TRACE_NAME},
    {NULL, "lcg_value", RANDOM, TRACE_NAME},
    {NULL, "mt_srand", RANDOM, TRACE_NAME},
    {NULL, "srand", RANDOM, TRACE_NAME},
    {NULL, "shuffle", RANDOM, TRACE_NAME},
    {NULL, "str_shuffle", RANDOM, TRACE_NAME},
    {NULL, "array_rand", RANDOM, TRACE_NAME},
    {NULL, "openssl_random_pseudo_bytes", RANDOM, TRACE_NAME},
    {NULL, "sodium_crypto_secretbox_keygen", RANDOM, TRACE_NAME},
    {"random\\randomizer", "__construct", RANDOM, TRACE_NAME},
    {"random\\engine\\mt19937", "__construct", RANDOM, TRACE_NAME},
    {"random\\engine\\secure", "generate", RANDOM, TRACE_NAME},

    {NULL, "getenv", ENVIRONMENT, TRACE_ARGUMENT},

    {"pdo", "__construct", DATABASE, TRACE_DSN},
    {"pdo", "connect", DATABASE, TRACE_DSN},
    {NULL, "mysqli_connect", DATABASE, TRACE_HOST},
    {NULL, "mysqli_real_connect", DATABASE, TRACE_NAME},
    {"mysqli", "__construct", DATABASE, TRACE_HOST},
    {"mysqli", "connect", DATABASE, TRACE_HOST},
    {"mysqli", "real_connect", DATABASE, TRACE_HOST},
    {NULL, "pg_connect", DATABASE, TRACE_NAME},
    {NULL, "pg_pconnect", DATABASE, TRACE_NAME},
    {"sqlite3", "__construct", DATABASE, TRACE_ARGUMENT},
    {"sqlite3", "open", DATABASE, TRACE_ARGUMENT},
    {"redis", "connect", DATABASE, TRACE_HOST},
    {"redis", "open", DATABASE, TRACE_HOST},
    {"redis", "pconnect", DATABASE, TRACE_HOST},
    {"redis", "popen", DATABASE, TRACE_HOST},
    {"rediscluster", "__construct", DATABASE, TRACE_NAME},
    {"memcached", "get", DATABASE, TRACE_NAME},
    {"memcache", "connect", DATABASE, TRACE_HOST},
    {"mongodb\\driver\\manager", "__construct", DATABASE, TRACE_NAME},
    {NULL, "oci_connect", DATABASE, TRACE_NAME},
    {NULL, "odbc_connect", DATABASE, TRACE_NAME},
    {NULL, "sqlsrv_connect", DATABASE, TRACE_HOST},

    {NULL, "fsockopen", NETWORK, TRACE_HOST},
    {NULL, "pfsockopen", NETWORK, TRACE_HOST},
    {NULL, "stream_socket_client", NETWORK, TRACE_HOST},
    {NULL, "socket_connect", NETWORK, TRACE_NAME},
    {NULL, "curl_exec", NETWORK, TRACE_NAME},
    {NULL, "curl_multi_exec", NETWORK, TRACE_NAME},
    {NULL, "gethostbyname", NETWORK, TRACE_HOST},
    {NULL, "gethostbynamel", NETWORK, TRACE_HOST},
    {NULL, "gethostbyaddr", NETWORK, TRACE_HOST},
    {NULL, "dns_get_record", NETWORK, TRACE_HOST},
    {NULL, "dns_get_mx", NETWORK, TRACE_HOST},
    {NULL, "getmxrr", NETWORK, TRACE_HOST},
    {NULL, "checkdnsrr", NETWORK, TRACE_HOST},
    {NULL, "dns_check_record", NETWORK, TRACE_HOST},
    {NULL, "mail", NETWORK, TRACE_NAME},
    {NULL, "ldap_bind", NETWORK, TRACE_NAME},
    {NULL, "ftp_connect", NETWORK, TRACE_HOST},
    {NULL, "ftp_ssl_connect", NETWORK, TRACE_HOST},
    {NULL, "ssh2_connect", NETWORK, TRACE_HOST},
    {"soapclient", "__construct", NETWORK, TRACE_NAME},

    {NULL, "fopen", FILES, TRACE_PATH},
    {NULL, "file_get_contents", FILES, TRACE_PATH},
    {NULL, "file_put_contents", FILES, TRACE_PATH},
    {NULL, "file", FILES, TRACE_PATH},
    {NULL, "readfile", FILES, TRACE_PATH},
    {NULL, "gzopen", FILES, TRACE_PATH},
    {NULL, "gzfile", FILES, TRACE_PATH},
    {NULL, "parse_ini_file", FILES, TRACE_PATH},
    {NULL, "simplexml_load_file", FILES, TRACE_PATH},
    {NULL, "scandir", FILES, TRACE_PATH},
    {NULL, "opendir", FILES, TRACE_PATH},
    {NULL, "glob", FILES, TRACE_PATH},
    {"splfileobject", "__construct", FILES, TRACE_PATH},
    {"directoryiterator", "__construct", FILES, TRACE_PATH},
    {"filesystemiterator", "__construct", FILES, TRACE_PATH},
    {"domdocument", "load", FILES, TRACE_PATH},
    {"xmlreader", "open", FILES, TRACE_PATH},
    {NULL, NULL, NULL, TRACE_NAME},
};

static const zval *argument(const zend_execute_data *frame, uint32_t number) {
    if (ZEND_CALL_NUM_ARGS(frame) < number) {
        return NULL;
    }
    const zval *value = ZEND_CALL_ARG(frame, number);
    ZVAL_DEREF(value);
    return value;
}

static const zend_string *text_argument(const zend_execute_data *frame, uint32_t number) {
    const zval *value = argument(frame, number);
    return value != NULL && Z_TYPE_P(value) == IS_STRING ? Z_STR_P(value) : NULL;
}

static bool is_given(const zend_execute_data *frame, uint32_t number) {
    const zval *value = argument(frame, number);
    return value != NULL && Z_TYPE_P(value) != IS_NULL;
}

static bool starts_with(const char *text, const char *start) {
    return zend_binary_strncasecmp(text, strlen(text), start, strlen(start), strlen(start)) == 0;
}

/* A date with a year is the same whenever it is read; `@` is a timestamp. */
static bool is_whole_date(const zend_string *text) {
    const char *at = ZSTR_VAL(text);
    return *at == '@' ||
           (ZSTR_LEN(text) >= 8 && isdigit((unsigned char)at[0]) && isdigit((unsigned char)at[1]) &&
               isdigit((unsigned char)at[2]) && isdigit((unsigned char)at[3]));
}

static void add_name(
    smart_str *what, const struct trace_call *call, const zend_execute_data *frame) {
    const zend_function *function = frame->func;
    if (call->class != NULL && function->common.scope != NULL) {
        bool constructs = strcmp(call->name, "__construct") == 0;
        smart_str_appends(what, constructs ? "new " : "");
        smart_str_append(what, function->common.scope->name);
        smart_str_appends(what, constructs ? "" : "::");
        smart_str_appends(what, constructs ? "" : ZSTR_VAL(function->common.function_name));
    } else {
        smart_str_appends(what, call->name);
    }
}

/* Of a URL: the scheme and the host, without user, password, path and query. */
static void add_host(smart_str *what, const char *url, size_t len) {
    const char *scheme = zend_memnstr(url, "://", 3, url + len);
    const char *host = scheme != NULL ? scheme + 3 : url;
    size_t host_len = strcspn(host, "/?#");
    const char *at = memrchr(host, '@', host_len);
    if (at != NULL) {
        host_len -= (size_t)(at + 1 - host);
        host = at + 1;
    }
    smart_str_appendl(what, url, scheme != NULL ? (size_t)(scheme + 3 - url) : 0);
    /* a path is a Unix socket */
    bool is_socket = *url == '/' || (scheme != NULL && starts_with(url, "unix"));
    smart_str_appendl(what, is_socket ? (scheme != NULL ? scheme + 3 : url) : host,
        is_socket ? strlen(scheme != NULL ? scheme + 3 : url) : host_len);
}

/* Returns what opening the path reads; NULL: nothing from outside the process. */
static const char *kind_of_path(const char *path) {
    static const char *const nothing[] = {"php://memory", "php://temp", "php://output",
        "php://stdout", "php://stderr", "php://filter", "data:", "/dev/null", "/dev/stdout",
        "/dev/stderr"};
    static const char *const far[] = {"http://", "https://", "ftp://", "ftps://", "ssh2."};
    for (size_t i = 0; i < sizeof nothing / sizeof *nothing; i++) {
        if (starts_with(path, nothing[i])) {
            return NULL;
        }
    }
    for (size_t i = 0; i < sizeof far / sizeof *far; i++) {
        if (starts_with(path, far[i])) {
            return NETWORK;
        }
    }
    return starts_with(path, "php://input")                                        ? REQUEST
           : starts_with(path, "/dev/urandom") || starts_with(path, "/dev/random") ? RANDOM
                                                                                   : FILES;
}

static bool writes(const struct trace_call *call, const zend_execute_data *frame) {
    const zend_string *mode = text_argument(frame, 2);
    return strcmp(call->name, "file_put_contents") == 0 ||
           (strcmp(call->name, "fopen") == 0 && mode != NULL &&
               strpbrk(ZSTR_VAL(mode), "waxc") != NULL);
}

void trace_record_call(const struct trace_call *call, zend_execute_data *frame) {
    const zend_string *first = text_argument(frame, 1);
    const char *kind = call->kind;
    smart_str what = {0};
    add_name(&what, call, frame);
    smart_str_appendc(&what, '(');
    switch (call->detail) {
    case TRACE_NAME:
        break;
    case TRACE_ARGUMENT:
        if (first != NULL) {
            smart_str_append_printf(&what, "'%s'", ZSTR_VAL(first));
        }
        break;
    case TRACE_PATH:
        if (first == NULL) {
            kind = NULL;
            break;
        }
        kind = kind_of_path(ZSTR_VAL(first));
        if (kind != NULL && strcmp(kind, NETWORK) == 0) {
            smart_str_appendc(&what, '\'');
            add_host(&what, ZSTR_VAL(first), ZSTR_LEN(first));
            smart_str_appendc(&what, '\'');
        } else {
            smart_str_append_printf(
                &what, "'%s'%s", ZSTR_VAL(first), writes(call, frame) ? ", written" : "");
        }
        break;
    case TRACE_HOST:
        if (first != NULL) {
            smart_str_appendc(&what, '\'');
            add_host(&what, ZSTR_VAL(first), ZSTR_LEN(first));
            smart_str_appendc(&what, '\'');
        }
        break;
    case TRACE_DSN:
        if (first != NULL) {
            smart_str_append_printf(
                &what, "'%.*s:…'", (int)strcspn(ZSTR_VAL(first), ":"), ZSTR_VAL(first));
        }
        break;
    case TRACE_UNLESS_2:
        kind = is_given(frame, 2) ? NULL : kind;
        break;
    case TRACE_UNLESS_6:
        kind = is_given(frame, 6) ? NULL : kind;
        break;
    case TRACE_DATE:
        if ((first != NULL && is_whole_date(first)) ||
            (strcmp(call->name, "strtotime") == 0 && is_given(frame, 2))) {
            kind = NULL;
        }
        if (first != NULL) {
            smart_str_append_printf(&what, "'%.40s'", ZSTR_VAL(first));
        }
        break;
    }
    smart_str_appendc(&what, ')');
    smart_str_0(&what);
    if (kind != NULL) {
        trace_record(kind, ZSTR_VAL(what.s), ZSTR_LEN(what.s));
    }
    smart_str_free(&what);
}
