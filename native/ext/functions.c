/* The PHP functions of the `hearth` extension: they check arguments and ask the host (host.h). hearth.stub.php is their manual. */
#include "ext/compat.h"
#include "ext/curl/egress.h"
#include "ext/streams/streams.h"
#include "function_statics.h"
#include "header_line.h"
#include "host.h"
#include "object_properties.h"
#include "publish.h"
#include "sockets.h"

#include <SAPI.h>
#include <ext/json/php_json.h>
#include <ext/standard/info.h>
#include <syslog.h>
#include <zend_exceptions.h>
#include <zend_smart_str.h>

#include "hearth_arginfo.h"

#ifndef HEARTH_VERSION
#define HEARTH_VERSION "0.1.0"
#endif

const struct hearth_host *hearth_host;

PHP_FUNCTION(hearth_handle_request) {
    zend_fcall_info fci;
    zend_fcall_info_cache fcc;

    ZEND_PARSE_PARAMETERS_START(1, 1)
    Z_PARAM_FUNC(fci, fcc)
    ZEND_PARSE_PARAMETERS_END();

    if (hearth_host == NULL || hearth_host->handle_request == NULL) {
        zend_throw_error(NULL,
            "%s() needs the model \"worker\": start the server with --model worker",
            get_active_function_name());
        RETURN_THROWS();
    }
    RETURN_BOOL(hearth_host->handle_request(&fci, &fcc));
}

PHP_FUNCTION(hearth_await_request) {
    ZEND_PARSE_PARAMETERS_NONE();
    RETURN_BOOL(
        hearth_host != NULL && hearth_host->await_request != NULL && hearth_host->await_request());
}

PHP_FUNCTION(hearth_finish_request) {
    ZEND_PARSE_PARAMETERS_NONE();
    RETURN_BOOL(hearth_host != NULL && hearth_host->finish_request());
}

/* Turns HTTP_X_Y into X-Y as php-fpm's function does. */
static void add_request_header(
    void *arg, const char *name, size_t name_len, const char *value, size_t value_len) {
    sapi_add_request_header(name, (unsigned)name_len, (char *)value, (unsigned)value_len, arg);
}

PHP_FUNCTION(hearth_request_headers) {
    ZEND_PARSE_PARAMETERS_NONE();
    array_init(return_value);
    if (hearth_host != NULL) {
        hearth_host->each_variable(add_request_header, return_value);
    }
}

static void add_response_header(void *element, void *arg) {
    struct header_line line;
    if (header_line_split(element, &line) && line.name_len > 0) {
        add_assoc_stringl_ex(arg, line.name, line.name_len, (char *)line.value, line.value_len);
    }
}

PHP_FUNCTION(hearth_response_headers) {
    ZEND_PARSE_PARAMETERS_NONE();
    array_init(return_value);
    zend_llist_apply_with_argument(
        &SG(sapi_headers).headers, (llist_apply_with_arg_func_t)add_response_header, return_value);
}

PHP_FUNCTION(headers_send) {
    zend_long status = 200;

    ZEND_PARSE_PARAMETERS_START(0, 1)
    Z_PARAM_OPTIONAL
    Z_PARAM_LONG(status)
    ZEND_PARSE_PARAMETERS_END();

    if (status >= 100 && status < 200) {
        bool sent = hearth_host != NULL && hearth_host->inform(status);
        RETURN_LONG(sent ? SAPI_HEADER_SENT_SUCCESSFULLY : SAPI_HEADER_SEND_FAILED);
    }
    if (status < 100 || status > 999) {
        zend_argument_value_error(1, "must be between 100 and 999");
        RETURN_THROWS();
    }
    SG(sapi_headers).http_response_code = (int)status;
    RETURN_LONG(sapi_send_headers());
}

static void log_line(int level, zend_string *message, HashTable *context) {
    if (hearth_host == NULL) {
        php_log_err_with_severity(ZSTR_VAL(message), level);
        return;
    }
    smart_str json = {0};
    if (zend_hash_num_elements(context) > 0) {
        zval array;
        ZVAL_ARR(&array, context);
        php_json_encode(&json, &array,
            PHP_JSON_FORCE_OBJECT | PHP_JSON_UNESCAPED_SLASHES | PHP_JSON_UNESCAPED_UNICODE |
                PHP_JSON_INVALID_UTF8_SUBSTITUTE | PHP_JSON_PARTIAL_OUTPUT_ON_ERROR);
        if (EG(exception)) {
            smart_str_free(&json);
            return;
        }
    }
    smart_str_0(&json);
    hearth_host->log(level, message, json.s != NULL ? json.s : ZSTR_EMPTY_ALLOC());
    smart_str_free(&json);
}

/* The syslog level of a PSR-3 name, or -1. */
static int level_of_name(const zend_string *name) {
    static const char *const names[] = {
        "emergency", "alert", "critical", "error", "warning", "notice", "info", "debug"};
    for (int level = LOG_EMERG; level <= LOG_DEBUG; level++) {
        if (zend_binary_strcasecmp(
                ZSTR_VAL(name), ZSTR_LEN(name), names[level], strlen(names[level])) == 0) {
            return level;
        }
    }
    return -1;
}

PHP_FUNCTION(hearth_log) {
    zend_string *message;
    zend_string *name = NULL;
    zend_long number = LOG_INFO;
    HashTable *context = (HashTable *)&zend_empty_array;

    ZEND_PARSE_PARAMETERS_START(1, 3)
    Z_PARAM_STR(message)
    Z_PARAM_OPTIONAL
    Z_PARAM_STR_OR_LONG(name, number)
    Z_PARAM_ARRAY_HT(context)
    ZEND_PARSE_PARAMETERS_END();

    if (name != NULL) {
        number = level_of_name(name);
    }
    if (number < LOG_EMERG || number > LOG_DEBUG) {
        zend_argument_value_error(2, "must be a PSR-3 level or a number between 0 and 7");
        RETURN_THROWS();
    }
    log_line((int)number, message, context);
}

PHP_FUNCTION(frankenphp_log) {
    zend_string *message;
    zend_long level = 0;
    HashTable *context = (HashTable *)&zend_empty_array;

    ZEND_PARSE_PARAMETERS_START(1, 3)
    Z_PARAM_STR(message)
    Z_PARAM_OPTIONAL
    Z_PARAM_LONG(level)
    Z_PARAM_ARRAY_HT(context)
    ZEND_PARSE_PARAMETERS_END();

    /* Go's slog: everything from one named level up to the next belongs to it */
    log_line(level < 0   ? LOG_DEBUG
             : level < 4 ? LOG_INFO
             : level < 8 ? LOG_WARNING
                         : LOG_ERR,
        message, context);
}

PHP_FUNCTION(hearth_on_worker_start) {
    zend_fcall_info fci;
    zend_fcall_info_cache fcc;

    ZEND_PARSE_PARAMETERS_START(1, 1)
    Z_PARAM_FUNC(fci, fcc)
    ZEND_PARSE_PARAMETERS_END();

    RETURN_BOOL(hearth_host != NULL && hearth_host->on_worker_start != NULL &&
                hearth_host->on_worker_start(&fci.function_name));
}

PHP_FUNCTION(hearth_keep_connection) {
    zend_object *connection;

    ZEND_PARSE_PARAMETERS_START(1, 1)
    Z_PARAM_OBJ(connection)
    ZEND_PARSE_PARAMETERS_END();

    (void)connection;
    RETURN_BOOL(hearth_host != NULL &&
                (hearth_host->keeps_state ||
                    (hearth_host->keep_connection != NULL && hearth_host->keep_connection())));
}

PHP_FUNCTION(hearth_keep_files) {
    ZEND_PARSE_PARAMETERS_NONE();

    RETURN_BOOL(
        hearth_host != NULL && hearth_host->keep_files != NULL && hearth_host->keep_files());
}

PHP_FUNCTION(hearth_add_server_variables) {
    HashTable *values;

    ZEND_PARSE_PARAMETERS_START(1, 1)
    Z_PARAM_ARRAY_HT(values)
    ZEND_PARSE_PARAMETERS_END();

    if (hearth_host != NULL && hearth_host->add_server_variables != NULL) {
        hearth_host->add_server_variables(values);
    }
}

PHP_FUNCTION(hearth_remember_statics) {
    zend_string *folder;
    HashTable *foreign;

    ZEND_PARSE_PARAMETERS_START(2, 2)
    Z_PARAM_STR(folder)
    Z_PARAM_ARRAY_HT(foreign)
    ZEND_PARSE_PARAMETERS_END();

    function_statics_remember(folder, foreign);
}

PHP_FUNCTION(hearth_put_back_statics) {
    ZEND_PARSE_PARAMETERS_NONE();
    function_statics_put_back();
}

PHP_FUNCTION(hearth_remember_properties) {
    HashTable *objects;

    ZEND_PARSE_PARAMETERS_START(1, 1)
    Z_PARAM_ARRAY_HT(objects)
    ZEND_PARSE_PARAMETERS_END();

    object_properties_remember(objects);
}

PHP_FUNCTION(hearth_put_back_properties) {
    ZEND_PARSE_PARAMETERS_NONE();
    object_properties_put_back();
}

static PHP_RINIT_FUNCTION(hearth) {
    (void)type;
    (void)module_number;
    egress_activate();
    streams_activate();
    return SUCCESS;
}

static PHP_RSHUTDOWN_FUNCTION(hearth) {
    (void)type;
    (void)module_number;
    function_statics_forget();
    object_properties_forget();
    egress_settle();
    return SUCCESS;
}

static PHP_MINIT_FUNCTION(hearth) {
    (void)type;
    egress_startup(module_number);
    publish_startup();
    sockets_startup();
    streams_startup(module_number);
    REGISTER_LONG_CONSTANT("FRANKENPHP_LOG_LEVEL_DEBUG", -4, CONST_PERSISTENT);
    REGISTER_LONG_CONSTANT("FRANKENPHP_LOG_LEVEL_INFO", 0, CONST_PERSISTENT);
    REGISTER_LONG_CONSTANT("FRANKENPHP_LOG_LEVEL_WARN", 4, CONST_PERSISTENT);
    REGISTER_LONG_CONSTANT("FRANKENPHP_LOG_LEVEL_ERROR", 8, CONST_PERSISTENT);
    return SUCCESS;
}

static PHP_MSHUTDOWN_FUNCTION(hearth) {
    (void)type;
    streams_shutdown();
    egress_shutdown(module_number);
    return SUCCESS;
}

static PHP_MINFO_FUNCTION(hearth) {
    (void)zend_module;
    php_info_print_table_start();
    php_info_print_table_row(2, "Hearth", "enabled");
    php_info_print_table_row(2, "Version", HEARTH_VERSION);
    const char *why = egress_why_direct();
    php_info_print_table_row(2, "ext-curl through the egress broker", why == NULL ? "on" : why);
    char calls[24];
    snprintf(calls, sizeof calls, "%lu", egress_fast_calls());
    php_info_print_table_row(2, "calls of this process without libcurl", calls);
    why = streams_why_direct();
    php_info_print_table_row(2, "Streams through the egress broker", why == NULL ? "on" : why);
    php_info_print_table_end();
}

/* Their calls are redirected, so these functions must exist first. */
static const zend_module_dep dependencies[] = {
    ZEND_MOD_OPTIONAL("curl") ZEND_MOD_OPTIONAL("openssl") ZEND_MOD_END};

zend_module_entry hearth_module_entry = {
    STANDARD_MODULE_HEADER_EX,
    NULL,
    dependencies,
    "hearth",
    ext_functions,
    PHP_MINIT(hearth),
    PHP_MSHUTDOWN(hearth),
    PHP_RINIT(hearth),
    PHP_RSHUTDOWN(hearth),
    PHP_MINFO(hearth),
    HEARTH_VERSION,
    STANDARD_MODULE_PROPERTIES,
};
