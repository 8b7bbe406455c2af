/* See stream_options.h. The options: ext/standard/http_fopen_wrapper.c and ext/openssl/xp_ssl.c of php-src. */
#include "ext/streams/stream_options.h"

#include <php_ini.h>
#include <stdlib.h>
#include <strings.h>

/* The effect of an option on the way of a call. */
enum bearing {
    INDIFFERENT,
    FALSE_ONLY, /* anything else goes directly */
    TRUE_ONLY,
    EMPTY_ONLY,
    VERSION, /* of HTTP: 1.1 */
    VERIFY_PEER,
    VERIFY_NAME,
    AUTHORITIES,
    CERTIFICATE,
    KEY,
    PEER_NAME,
    TLS_VERSIONS,
};

struct rule {
    const char *name;
    enum bearing bearing;
};

static const struct rule http_rules[] = {
    {"method", INDIFFERENT},
    {"header", INDIFFERENT},
    {"user_agent", INDIFFERENT},
    {"content", INDIFFERENT},
    {"follow_location", INDIFFERENT},
    {"max_redirects", INDIFFERENT},
    {"timeout", INDIFFERENT},
    {"ignore_errors", INDIFFERENT},
    {"protocol_version", VERSION},
    {"proxy", EMPTY_ONLY},
    {"request_fulluri", FALSE_ONLY},
    {"auto_decode", TRUE_ONLY},
    {NULL, INDIFFERENT},
};

static const struct rule ssl_rules[] = {
    {"verify_peer", VERIFY_PEER},
    {"verify_peer_name", VERIFY_NAME},
    {"cafile", AUTHORITIES},
    {"capath", EMPTY_ONLY},
    {"local_cert", CERTIFICATE},
    {"local_pk", KEY},
    {"passphrase", EMPTY_ONLY},
    {"peer_name", PEER_NAME},
    {"crypto_method", TLS_VERSIONS},
    {"allow_self_signed", FALSE_ONLY},
    {"capture_peer_cert", FALSE_ONLY},
    {"capture_peer_cert_chain", FALSE_ONLY},
    {"SNI_enabled", TRUE_ONLY},
    {"disable_compression", TRUE_ONLY},
    {NULL, INDIFFERENT},
};

static const struct rule socket_rules[] = {
    {"tcp_nodelay", INDIFFERENT},
    {"bindto", EMPTY_ONLY},
    {NULL, INDIFFERENT},
};

struct stream_options {
    bool verify_peer, verify_name;
    const char *authorities, *certificate, *key; /* borrowed from the context */
    zend_long versions;
    const char *host; /* borrowed; no NUL at the end */
    size_t host_len;
};

static bool is_path(const zval *value) {
    return Z_TYPE_P(value) == IS_STRING && Z_STRVAL_P(value)[0] == '/' &&
           strlen(Z_STRVAL_P(value)) == Z_STRLEN_P(value);
}

static bool take(struct stream_options *options, enum bearing bearing, zval *value) {
    switch (bearing) {
    case INDIFFERENT:
        return true;
    case FALSE_ONLY:
        return !zend_is_true(value);
    case TRUE_ONLY:
        return zend_is_true(value);
    case EMPTY_ONLY:
        return Z_TYPE_P(value) == IS_NULL ||
               (Z_TYPE_P(value) == IS_STRING && Z_STRLEN_P(value) == 0);
    case VERSION: {
        double version = zval_get_double(value);
        return version >= 1.05 && version < 1.15; /* printed with one digit it is 1.1 */
    }
    case VERIFY_PEER:
        options->verify_peer = zend_is_true(value);
        return true;
    case VERIFY_NAME:
        options->verify_name = zend_is_true(value);
        return true;
    case AUTHORITIES:
        options->authorities = Z_TYPE_P(value) == IS_STRING ? Z_STRVAL_P(value) : NULL;
        return Z_TYPE_P(value) == IS_NULL || is_path(value);
    case CERTIFICATE:
        options->certificate = Z_TYPE_P(value) == IS_STRING ? Z_STRVAL_P(value) : NULL;
        return Z_TYPE_P(value) == IS_NULL || is_path(value);
    case KEY:
        options->key = Z_TYPE_P(value) == IS_STRING ? Z_STRVAL_P(value) : NULL;
        return Z_TYPE_P(value) == IS_NULL || is_path(value);
    case PEER_NAME:
        return Z_TYPE_P(value) == IS_STRING && Z_STRLEN_P(value) == options->host_len &&
               strncasecmp(Z_STRVAL_P(value), options->host, options->host_len) == 0;
    case TLS_VERSIONS:
        options->versions = zval_get_long(value);
        return true;
    }
    return false;
}

static bool take_all(struct stream_options *options, php_stream_context *context,
    const char *family, const struct rule *rules) {
    zval *values = zend_hash_str_find_deref(Z_ARRVAL(context->options), family, strlen(family));
    zend_string *name;
    zval *value;
    if (values == NULL || Z_TYPE_P(values) != IS_ARRAY) {
        return true;
    }
    ZEND_HASH_FOREACH_STR_KEY_VAL(Z_ARRVAL_P(values), name, value) {
        const struct rule *rule = rules;
        while (name != NULL && rule->name != NULL &&
               !zend_string_equals_cstr(name, rule->name, strlen(rule->name))) {
            rule++;
        }
        ZVAL_DEREF(value);
        if (name == NULL || rule->name == NULL || !take(options, rule->bearing, value)) {
            return false;
        }
    }
    ZEND_HASH_FOREACH_END();
    return true;
}

/* A string of structured fields (RFC 8941, 3.3.3). False: it cannot be one. */
static bool add_string(smart_str *out, const char *key, const char *value) {
    smart_str_appends(out, ", ");
    smart_str_appends(out, key);
    smart_str_appends(out, "=\"");
    for (; *value != '\0'; value++) {
        if (*value < ' ' || *value > '~') {
            return false;
        }
        if (*value == '"' || *value == '\\') {
            smart_str_appendc(out, '\\');
        }
        smart_str_appendc(out, *value);
    }
    smart_str_appendc(out, '"');
    return true;
}

static bool add_versions(smart_str *out, zend_long versions) {
    zend_long tls12 = STREAM_CRYPTO_METHOD_TLSv1_2_SERVER;
    zend_long tls13 = STREAM_CRYPTO_METHOD_TLSv1_3_SERVER;
    if ((versions & (tls12 | tls13)) == 0) {
        return false;
    }
    if ((versions & tls13) == 0) {
        smart_str_appends(out, ", tls-max=1.2");
    } else if ((versions & tls12) == 0) {
        smart_str_appends(out, ", tls-min=1.3");
    }
    return true;
}

static bool is_set(const char *value) {
    return value != NULL && *value != '\0';
}

/* The authorities that PHP and OpenSSL trust if the context names none. False: the broker cannot
 * be told. */
static bool default_authorities(struct stream_options *options) {
    if (is_set(getenv("SSL_CERT_FILE")) || is_set(getenv("SSL_CERT_DIR")) ||
        is_set(zend_ini_string("openssl.capath", strlen("openssl.capath"), 0))) {
        return false;
    }
    const char *file = zend_ini_string("openssl.cafile", strlen("openssl.cafile"), 0);
    options->authorities = is_set(file) ? file : NULL;
    return options->authorities == NULL || *file == '/';
}

static bool add_tls(smart_str *out, struct stream_options *options) {
    if (options->verify_peer != options->verify_name) {
        return false; /* half a verification is no service of the broker's */
    }
    if (!options->verify_peer) {
        smart_str_appends(out, ", verify=?0");
    } else if ((options->authorities == NULL && !default_authorities(options)) ||
               (options->authorities != NULL && !add_string(out, "ca", options->authorities))) {
        return false;
    }
    if (options->key != NULL && options->certificate == NULL) {
        return false;
    }
    if (options->certificate != NULL &&
        (!add_string(out, "cert", options->certificate) ||
            !add_string(out, "key", options->key != NULL ? options->key : options->certificate))) {
        return false;
    }
    return add_versions(out, options->versions);
}

bool stream_options_encode(php_stream_context *context, bool https, const char *host,
    size_t host_len, const struct timeval *timeout, smart_str *out) {
    struct stream_options options = {
        .verify_peer = true,
        .verify_name = true,
        .versions = STREAM_CRYPTO_METHOD_TLS_ANY_CLIENT,
        .host = host,
        .host_len = host_len,
    };
    if (context != NULL && (!take_all(&options, context, "http", http_rules) ||
                               !take_all(&options, context, "socket", socket_rules) ||
                               (https && !take_all(&options, context, "ssl", ssl_rules)))) {
        return false;
    }
    /* The protocol of PHP's streams: field names keep their case, and the status has its phrase. */
    smart_str_appends(out, ", http=1.1");
    if (timeout != NULL && timeout->tv_sec >= 0) {
        zend_long limit = (zend_long)timeout->tv_sec * 1000 + timeout->tv_usec / 1000;
        smart_str_appends(out, ", connect-timeout=");
        smart_str_append_long(out, limit > 0 ? limit : 1);
    }
    return !https || add_tls(out, &options);
}
