/* See publish.h. */
#include "publish.h"

#include <ctype.h>
#include <ext/json/php_json.h>
#include <ext/standard/html.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "host.h"
#include "wire/frame.h"

/* Maximum length of names and data; a frame has additional room for their lengths. */
enum { PUBLISHED_AT_ONCE = FRAME_MAX_PAYLOAD - 8192 };

/* Limits of the application that is published to, in the order of HEARTH_REALTIME. Data larger
 * than one frame is rejected here, too. */
static struct {
    size_t channels;
    size_t channel_name;
    size_t event_name;
    size_t data;
} limits;

static bool has_realtime;

void publish_startup(void) {
    const char *said = getenv("HEARTH_REALTIME");
    has_realtime = said != NULL && sscanf(said, "%zu %zu %zu %zu", &limits.channels,
                                       &limits.channel_name, &limits.event_name, &limits.data) == 4;
    if (limits.channels > FRAME_MAX_PAIRS) {
        limits.channels = FRAME_MAX_PAIRS;
    }
}

/* NULL when events can be published; else what is missing and what to do. Static. */
static const char *why_not(void) {
    if (hearth_host == NULL || hearth_host->publish == NULL) {
        return "there is no server to publish through here: it works in scripts that `hearth "
               "serve` "
               "runs itself; in other processes use the HTTP API, by any server library of Pusher";
    }
    if (!has_realtime) {
        return "realtime is off: name an application in hearth.toml (realtime.apps), by --app "
               "ID:KEY:SECRET or in the application's .env";
    }
    return NULL;
}

PHP_FUNCTION(hearth_can_publish) {
    ZEND_PARSE_PARAMETERS_NONE();
    RETURN_BOOL(why_not() == NULL);
}

/* The same rules as channels::ChannelName (crates/channels/src/name.rs). */
static bool is_channel(const zend_string *name) {
    static const char to_user[] = "#server-to-user-";
    const char *at = ZSTR_VAL(name);
    const char *end = at + ZSTR_LEN(name);
    if (strncmp(at, to_user, sizeof to_user - 1) == 0) {
        at += sizeof to_user - 1;
    }
    if (at == end) {
        return false;
    }
    for (; at < end; at++) {
        if (*at == '\0' || (!isalnum((unsigned char)*at) && strchr("_-=@,.;", *at) == NULL)) {
            return false;
        }
    }
    return true;
}

static bool check_channel(const zend_string *name) {
    if (!is_channel(name)) {
        zend_argument_value_error(
            1, "must name channels: letters, digits and _-=@,.; (got \"%s\")", ZSTR_VAL(name));
        return false;
    }
    if (ZSTR_LEN(name) > limits.channel_name) {
        zend_argument_value_error(1, "must name channels of at most %zu characters, got %zu",
            limits.channel_name, ZSTR_LEN(name));
        return false;
    }
    return true;
}

static bool is_utf8(const zend_string *text) {
    size_t at = 0;
    while (at < ZSTR_LEN(text)) {
        zend_result status;
        php_next_utf8_char((const unsigned char *)ZSTR_VAL(text), ZSTR_LEN(text), &at, &status);
        if (status != SUCCESS) {
            return false;
        }
    }
    return true;
}

static bool check_event(const zend_string *event) {
    if (ZSTR_LEN(event) == 0 || ZSTR_LEN(event) > limits.event_name) {
        zend_argument_value_error(2, "must have between 1 and %zu characters", limits.event_name);
        return false;
    }
    if (!is_utf8(event)) {
        zend_argument_value_error(2, "must be UTF-8");
        return false;
    }
    return true;
}

/* `\d+\.\d+` */
static bool check_socket(const zend_string *socket) {
    const char *at = ZSTR_VAL(socket);
    size_t high = strspn(at, "0123456789");
    size_t low = at[high] == '.' ? strspn(at + high + 1, "0123456789") : 0;
    if (high == 0 || low == 0 || high + 1 + low != ZSTR_LEN(socket)) {
        zend_argument_value_error(4, "must be the id of a socket, such as \"1234.5678\"");
        return false;
    }
    return true;
}

/* Returns the data for clients: strings unchanged, everything else as JSON. NULL with an
 * exception. Owned by the caller. */
static zend_string *encoded(zval *data) {
    if (Z_TYPE_P(data) == IS_STRING) {
        return zend_string_copy(Z_STR_P(data));
    }
    zval function, arguments[2], json;
    ZVAL_STRINGL(&function, "json_encode", strlen("json_encode"));
    ZVAL_COPY_VALUE(&arguments[0], data);
    ZVAL_LONG(&arguments[1], PHP_JSON_THROW_ON_ERROR);
    ZVAL_UNDEF(&json);
    call_user_function(NULL, NULL, &function, &json, 2, arguments);
    zval_ptr_dtor_str(&function);
    if (EG(exception) != NULL || Z_TYPE(json) != IS_STRING) {
        zval_ptr_dtor(&json);
        return NULL;
    }
    return Z_STR(json);
}

static bool check_data(const zend_string *data) {
    if (ZSTR_LEN(data) > limits.data) {
        zend_argument_value_error(3, "must have at most %zu bytes once it is encoded, got %zu",
            limits.data, ZSTR_LEN(data));
        return false;
    }
    if (!is_utf8(data)) {
        zend_argument_value_error(3, "must be UTF-8");
        return false;
    }
    return true;
}

/* How many channels there are, or 0 with an exception. Borrowed by `event`: the names. */
static size_t take_channels(struct hearth_event *event, zend_string *one, HashTable *several) {
    size_t count = one != NULL ? 1 : zend_hash_num_elements(several);
    if (count == 0 || count > limits.channels) {
        zend_argument_value_error(
            1, "must name between 1 and %zu channels, got %zu", limits.channels, count);
        return 0;
    }
    event->channels = safe_emalloc(count, sizeof *event->channels, 0);
    if (one != NULL) {
        event->channels[event->count++] = one;
    } else {
        zval *name;
        ZEND_HASH_FOREACH_VAL(several, name) {
            ZVAL_DEREF(name);
            if (Z_TYPE_P(name) != IS_STRING) {
                zend_argument_type_error(
                    1, "must hold strings, %s given", zend_zval_type_name(name));
                return 0;
            }
            event->channels[event->count++] = Z_STR_P(name);
        }
        ZEND_HASH_FOREACH_END();
    }
    for (size_t i = 0; i < event->count; i++) {
        if (!check_channel(event->channels[i])) {
            return 0;
        }
    }
    return event->count;
}

static bool check_size(const struct hearth_event *event) {
    size_t size = ZSTR_LEN(event->name) + ZSTR_LEN(event->data);
    size += event->except != NULL ? ZSTR_LEN(event->except) : 0;
    for (size_t i = 0; i < event->count; i++) {
        size += ZSTR_LEN(event->channels[i]);
    }
    if (size > PUBLISHED_AT_ONCE) {
        zend_value_error(
            "hearth_publish(): an event's data and names may have %d bytes in all, got %zu",
            PUBLISHED_AT_ONCE, size);
        return false;
    }
    return true;
}

PHP_FUNCTION(hearth_publish) {
    zend_string *channel = NULL;
    HashTable *channels = NULL;
    struct hearth_event event = {0};
    zval *data;

    ZEND_PARSE_PARAMETERS_START(3, 4)
    Z_PARAM_ARRAY_HT_OR_STR(channels, channel)
    Z_PARAM_STR(event.name)
    Z_PARAM_ZVAL(data)
    Z_PARAM_OPTIONAL
    Z_PARAM_STR_OR_NULL(event.except)
    ZEND_PARSE_PARAMETERS_END();

    const char *problem = why_not();
    if (problem != NULL) {
        zend_throw_error(NULL, "hearth_publish(): %s", problem);
        RETURN_THROWS();
    }
    RETVAL_FALSE;
    if (take_channels(&event, channel, channels) != 0 && check_event(event.name) &&
        (event.except == NULL || check_socket(event.except)) &&
        (event.data = encoded(data)) != NULL && check_data(event.data) && check_size(&event)) {
        RETVAL_BOOL(hearth_host->publish(&event));
    }
    if (event.data != NULL) {
        zend_string_release(event.data);
    }
    if (event.channels != NULL) {
        efree(event.channels);
    }
}

PHP_FUNCTION(hearth_purge) {
    zval *tags = NULL;
    uint32_t count = 0;

    ZEND_PARSE_PARAMETERS_START(1, -1)
    Z_PARAM_VARIADIC('+', tags, count)
    ZEND_PARSE_PARAMETERS_END();

    for (uint32_t i = 0; i < count; i++) {
        if (Z_TYPE(tags[i]) != IS_STRING) {
            zend_argument_type_error(
                i + 1, "must be of type string, %s given", zend_zval_type_name(&tags[i]));
            RETURN_THROWS();
        }
        if (Z_STRLEN(tags[i]) == 0 || strpbrk(Z_STRVAL(tags[i]), " ,\t") != NULL ||
            !is_utf8(Z_STR(tags[i]))) {
            zend_argument_value_error(
                i + 1, "must be one tag: not empty, without spaces and commas");
            RETURN_THROWS();
        }
    }
    RETURN_BOOL(
        hearth_host != NULL && hearth_host->purge != NULL && hearth_host->purge(tags, count));
}
