/* See streams.h. PHP's own http wrapper makes each call, for both ways: it is given another connection.
 *
 * Promises
 * - Options, fields, redirects, warnings, notifications and $http_response_header are stock PHP's own, whatever its version.
 * - A transport that other code opens (stream_socket_client(), SoapClient, a database) is the stock one.
 */
#include "ext/compat.h"
#include "ext/streams/streams.h"

#include <SAPI.h>
#include <ext/standard/file.h>
#include <ext/standard/php_fopen_wrappers.h>
#include <php.h>
#include <php_ini.h>
#include <php_network.h>
#include <stdbool.h>
#include <string.h>

#include "ext/curl/route.h"
#include "ext/curl/settings.h"
#include "ext/streams/call.h"
#include "ext/streams/last_head.h"
#include "ext/streams/stream_options.h"

static bool intercept_streams;

/* clang-format off */
static PHP_INI_MH(on_intercept) {
    (void)entry; (void)mh_arg1; (void)mh_arg2; (void)mh_arg3; (void)stage;
    intercept_streams = zend_ini_parse_bool(new_value);
    return SUCCESS;
}

PHP_INI_BEGIN()
    PHP_INI_ENTRY("hearth.intercept_streams", "0", PHP_INI_SYSTEM, on_intercept)
PHP_INI_END()
/* clang-format on */

static const char *const schemes[] = {"http", "https"};
static const char *const transports[] = {"tcp", "ssl"};
enum { PLAIN, SECURE, BOTH };

static php_stream_wrapper wrapper;
static php_stream_wrapper_ops wrapper_ops;
static php_stream_transport_factory stock[BOTH];
static bool hooked;

/* The call that the wrapper is opening. The wrapper's code runs in the frame of the PHP function that was called; another
 * frame is PHP code that it has called back. */
struct opening {
    bool under_way;
    const zend_execute_data *frame;
    int transports; /* made for it: one, and another for each redirect */
};

static struct opening opening;

static struct call_failure failure;

/* `host:port`, as the wrapper writes it. The origin, or NULL: a name that is not for the broker. */
static zend_string *origin_of(
    const char *name, size_t name_len, bool https, struct target *target) {
    zend_string *origin =
        zend_strpprintf(0, "%s://%.*s", https ? "https" : "http", (int)name_len, name);
    if (!target_read(ZSTR_VAL(origin), target) || target->has_user ||
        target->authority_end != ZSTR_VAL(origin) + ZSTR_LEN(origin)) {
        zend_string_release(origin);
        return NULL;
    }
    return origin;
}

static void put_on_broker(php_stream *stream, bool https, const char *name, size_t name_len,
    const struct timeval *timeout, php_stream_context *context) {
    struct target target;
    smart_str options = {0};
    zend_string *origin = origin_of(name, name_len, https, &target);
    if (origin == NULL) {
        return;
    }
    if (!stream_options_encode(context, https, target.host, (size_t)(target.host_end - target.host),
            timeout, &options)) {
        zend_string_release(origin);
        smart_str_free(&options);
        return;
    }
    smart_str_0(&options);
    call_begin(stream, name, name_len, timeout, context, origin, options.s, &failure);
}

/* Replace the stock factories of `tcp` and `ssl`. They create the same streams, which go to the broker for the http
 * wrapper. */
static php_stream *make_transport(const char *proto, size_t proto_len, const char *name,
    size_t name_len, const char *persistent_id, int options, int flags, struct timeval *timeout,
    php_stream_context *context STREAMS_DC) {
    bool https = proto_len == strlen("ssl") && strncasecmp(proto, "ssl", proto_len) == 0;
    php_stream *stream = stock[https ? SECURE : PLAIN](proto, proto_len, name, name_len,
        persistent_id, options, flags, timeout, context STREAMS_REL_CC);
    bool ours = opening.under_way && opening.frame == EG(current_execute_data);
    opening.transports += ours;
    if (stream != NULL && ours && persistent_id == NULL &&
        flags == (STREAM_XPORT_CLIENT | STREAM_XPORT_CONNECT) && settings_broker() != NULL) {
        put_on_broker(stream, https, name, name_len, timeout, context);
    }
    return stream;
}

/* The wrapper has reached the end of the stream and reports it; stock PHP would have had no connection at all. */
static void mend_error(php_stream_wrapper *opened_by, int options) {
    if (FG(wrapper_errors) != NULL) {
        zend_hash_str_del(FG(wrapper_errors), (const char *)&opened_by, sizeof opened_by);
    }
    if (failure.message != NULL) {
        php_stream_wrapper_log_error(opened_by, options, "%s", ZSTR_VAL(failure.message));
    }
}

static void forget_failure(void) {
    if (failure.message != NULL) {
        zend_string_release(failure.message);
    }
    failure = (struct call_failure){0};
}

static php_stream *open_url(php_stream_wrapper *opened_by, const char *path, const char *mode,
    int options, zend_string **opened_path, php_stream_context *context STREAMS_DC) {
    php_stream *volatile stream = NULL;
    const struct opening outer = opening;
    zval last_head;
    last_head_keep(&last_head);
    forget_failure();
    opening = (struct opening){.under_way = true, .frame = EG(current_execute_data)};
    zend_try {
        stream = php_stream_http_wrapper.wops->stream_opener(
            opened_by, path, mode, options, opened_path, context STREAMS_REL_CC);
    }
    zend_catch {
        opening = (struct opening){0};
        zend_bailout();
    }
    zend_end_try();
    if (stream == NULL && failure.failed) {
        mend_error(opened_by, options);
        if (opening.transports == 1) {
            last_head_put_back(&last_head);
        }
    }
    opening = outer;
    forget_failure();
    zval_ptr_dtor(&last_head);
    return stream;
}

static void *swap(HashTable *table, const char *name, void *before, void *after) {
    zval *entry = zend_hash_str_find(table, name, strlen(name));
    void *found = entry != NULL ? Z_PTR_P(entry) : NULL;
    if (found != NULL && (before == NULL || found == before)) {
        Z_PTR_P(entry) = after;
    }
    return found;
}

/* Once, as soon as there is a broker's path. */
static void take_over(void) {
    HashTable *wrappers = php_stream_get_url_stream_wrappers_hash_global();
    HashTable *factories = php_stream_xport_get_hash();
    wrapper = php_stream_http_wrapper;
    wrapper_ops = *wrapper.wops;
    wrapper_ops.stream_opener = open_url;
    wrapper.wops = &wrapper_ops;
    for (int i = 0; i < BOTH; i++) {
        stock[i] = (php_stream_transport_factory)swap(
            factories, transports[i], NULL, (void *)make_transport);
        /* without OpenSSL there is no https; another extension's wrapper stays */
        swap(wrappers, schemes[i], (void *)&php_stream_http_wrapper, &wrapper);
    }
    hooked = true;
}

void streams_startup(int module_number) {
    zend_register_ini_entries(ini_entries, module_number);
    streams_activate();
}

void streams_activate(void) {
    opening = (struct opening){0};
    failure = (struct call_failure){0}; /* state left by a request is gone with its memory */
    if (!hooked && intercept_streams && settings_broker() != NULL) {
        take_over();
    }
}

const char *streams_why_direct(void) {
    return hooked ? NULL : "off";
}

void streams_shutdown(void) {
    if (!hooked) {
        return;
    }
    for (int i = 0; i < BOTH; i++) {
        swap(php_stream_get_url_stream_wrappers_hash_global(), schemes[i], &wrapper,
            (void *)&php_stream_http_wrapper);
        swap(php_stream_xport_get_hash(), transports[i], (void *)make_transport, (void *)stock[i]);
    }
    hooked = false;
}
