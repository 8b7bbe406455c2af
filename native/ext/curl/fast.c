/* See fast.h. */
#include "ext/curl/fast.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "ext/broker/exchange.h"
#include "ext/curl/answer.h"
#include "ext/curl/inflate.h"
#include "ext/curl/settings.h"
#include "ext/monotonic.h"

static unsigned long count;

unsigned long fast_count(void) {
    return count;
}

static void copy_text(char *to, size_t room, const char *text, size_t len) {
    size_t most = len < room ? len : room - 1;
    memcpy(to, text, most);
    to[most] = '\0';
}

static CURLcode fail(const struct handle *handle, CURLcode code, const char *message) {
    char *buffer = handle_pointer(handle, CURLOPT_ERRORBUFFER);
    if (buffer != NULL) {
        copy_text(buffer, CURL_ERROR_SIZE, message, strlen(message));
    }
    return code;
}

static bool starts_field(const char *line, size_t len, const char *name) {
    size_t name_len = strlen(name);
    return len > name_len && strncasecmp(line, name, name_len) == 0 && line[name_len] == ':';
}

/* The value of a field line without the white space around it. Owned by the caller. */
static char *value_of(const char *line, size_t len) {
    const char *end = line + len;
    const char *value = memchr(line, ':', len);
    for (value++; value < end && isspace((unsigned char)*value);) {
        value++;
    }
    while (end > value && isspace((unsigned char)end[-1])) {
        end--;
    }
    return strndup(value, (size_t)(end - value));
}

static unsigned long scheme_of(const char *value) {
    static const struct {
        const char *name;
        unsigned long bit;
    } schemes[] = {{"Basic", CURLAUTH_BASIC}, {"Digest", CURLAUTH_DIGEST},
        {"Negotiate", CURLAUTH_NEGOTIATE}, {"NTLM", CURLAUTH_NTLM}, {"Bearer", CURLAUTH_BEARER}};
    for (size_t i = 0; i < sizeof schemes / sizeof *schemes; i++) {
        size_t len = strlen(schemes[i].name);
        if (strncasecmp(value, schemes[i].name, len) == 0 && !isalnum((unsigned char)value[len])) {
            return schemes[i].bit;
        }
    }
    return 0;
}

/* Collects CURLINFO values from a line of the head. */
static void note_line(struct handle *handle, const char *line, size_t len) {
    struct fast *fast = &handle->fast;
    if (len > 12 && strncmp(line, "HTTP/", 5) == 0) {
        fast->status = (int)strtol(line + strcspn(line, " "), NULL, 10);
        fast->http_version = strncmp(line + 5, "1.0", 3) == 0 ? CURL_HTTP_VERSION_1_0
                             : line[5] == '2'                 ? CURL_HTTP_VERSION_2_0
                                                              : CURL_HTTP_VERSION_1_1;
        return;
    }
    bool type = starts_field(line, len, "Content-Type");
    bool length = starts_field(line, len, "Content-Length");
    bool later = starts_field(line, len, "Retry-After");
    bool sign_in = fast->status == 401 && starts_field(line, len, "WWW-Authenticate");
    bool coding = starts_field(line, len, "Content-Encoding") &&
                  handle_text(handle, CURLOPT_ACCEPT_ENCODING) != NULL;
    if (!type && !length && !later && !sign_in && !coding) {
        return;
    }
    char *value = value_of(line, len);
    if (type) {
        free(fast->content_type);
        fast->content_type = *value != '\0' ? value : NULL;
        value = *value != '\0' ? NULL : value;
    } else if (coding && fast->coding != NULL) {
        char *all;
        if (asprintf(&all, "%s, %s", fast->coding, value) < 0) {
            abort();
        }
        free(fast->coding);
        fast->coding = all;
    } else if (coding) {
        fast->coding = value;
        value = NULL;
    } else if (length) {
        fast->length = strtoll(value, NULL, 10);
    } else if (later) {
        time_t date = isdigit((unsigned char)*value) ? -1 : libcurl.getdate(value, NULL);
        fast->retry_after = date == -1 ? strtol(value, NULL, 10) : (long)(date - time(NULL));
        fast->retry_after = fast->retry_after < 0 ? 0 : fast->retry_after;
    } else {
        fast->sign_in |= scheme_of(value);
    }
    free(value);
}

/* Line by line, as libcurl hands them over. False: the application refused one. */
static bool hand_over_lines(struct handle *handle, const char *bytes, size_t len, bool head) {
    for (size_t at = 0; at < len;) {
        const char *line = bytes + at;
        const char *end = memchr(line, '\n', len - at);
        size_t line_len = end != NULL ? (size_t)(end - line) + 1 : len - at;
        if (head) {
            note_line(handle, line, line_len);
        }
        handle->fast.offered = line_len;
        handle->fast.taken = answer_header((char *)(uintptr_t)line, 1, line_len, handle);
        if (handle->fast.taken != line_len) {
            return false;
        }
        at += line_len;
    }
    return true;
}

static bool to_application(void *arg, char *bytes, size_t len) {
    struct handle *handle = arg;
    handle->fast.offered = len;
    handle->fast.taken = answer_body(bytes, 1, len, handle);
    return handle->fast.taken == len;
}

static bool is_older_than(unsigned version) {
    return libcurl_version < version;
}

/* Uses the wording of the loaded libcurl. Version 8.x reports the numbers, and counts only the
 * bytes that were accepted. */
static CURLcode fail_to_write(const struct handle *handle, const char *words) {
    char message[CURL_ERROR_SIZE];
    if (is_older_than(0x080000)) {
        return fail(handle, CURLE_WRITE_ERROR, words);
    }
    snprintf(message, sizeof message,
        "Failure writing output to destination, passed %zu returned %zd", handle->fast.offered,
        (ssize_t)handle->fast.taken);
    return fail(handle, CURLE_WRITE_ERROR, message);
}

/* Undoes what CURLOPT_ACCEPT_ENCODING has brought about. */
static CURLcode hand_over_decoded(struct handle *handle, const char *bytes, size_t len) {
    struct fast *fast = &handle->fast;
    bool taken = true;
    if (!inflater_run(fast->inflater, bytes, len, to_application, handle, &taken)) {
        return fail(handle, CURLE_BAD_CONTENT_ENCODING,
            "Error while processing content unencoding: the data are broken");
    }
    return taken ? CURLE_OK : fail_to_write(handle, "Failure writing output to destination");
}

/* Delivers the body in pieces of libcurl's usual size. */
static CURLcode hand_over_body(struct handle *handle, const char *bytes, size_t len) {
    struct fast *fast = &handle->fast;
    if (fast->coding != NULL && fast->inflater == NULL && !handle->step.follows) {
        bool known;
        fast->inflater = inflater_begin(fast->coding, &known);
        if (!known) {
            return fail(handle, CURLE_BAD_CONTENT_ENCODING,
                "Unrecognized content encoding type. libcurl understands deflate, gzip content "
                "encodings.");
        }
        if (fast->inflater == NULL) {
            free(fast->coding);
            fast->coding = NULL;
        }
    }
    if (fast->inflater != NULL) {
        fast->received += (curl_off_t)len;
        return hand_over_decoded(handle, bytes, len);
    }
    for (size_t at = 0; at < len;) {
        size_t piece = len - at < CURL_MAX_WRITE_SIZE ? len - at : CURL_MAX_WRITE_SIZE;
        fast->received += (curl_off_t)piece;
        if (!to_application(handle, (char *)(uintptr_t)bytes + at, piece)) {
            fast->received -= is_older_than(0x080000) ? 0 : (curl_off_t)piece;
            return fail_to_write(handle, "Failure writing output to destination");
        }
        at += piece;
    }
    return CURLE_OK;
}

static void note_answer(struct handle *handle, const struct call_answer *answer) {
    struct verdict *verdict = &handle->step.verdict;
    verdict->timed = true;
    verdict->reused = answer->reused;
    verdict->resolved = answer->resolved;
    verdict->connected = answer->connected;
    verdict->secured = answer->secured;
    verdict->port = answer->port;
    strcpy(verdict->protocol, answer->protocol == 20 ? "2" : "1.1");
    copy_text(verdict->address, sizeof verdict->address, answer->address, answer->address_len);
    handle->fast.first_byte = monotonic_microseconds();
}

static void note_refusal(struct verdict *verdict, const struct call_no_answer *why) {
    verdict->error = why->error;
    verdict->port = why->port;
    copy_text(verdict->reason, sizeof verdict->reason, why->reason, why->reason_len);
    copy_text(verdict->message, sizeof verdict->message, why->message, why->message_len);
    copy_text(verdict->address, sizeof verdict->address, why->address, why->address_len);
}

/* The end came before the declared `Content-Length`. */
static CURLcode cut_off(const struct handle *handle) {
    char message[CURL_ERROR_SIZE];
    snprintf(message, sizeof message,
        is_older_than(0x080a00) ? "transfer closed with %lld bytes remaining to read"
                                : "end of response with %lld bytes missing",
        (long long)(handle->fast.length - handle->fast.received));
    return fail(handle, CURLE_PARTIAL_FILE, message);
}

static CURLcode refused(struct handle *handle, const struct call_no_answer *why, bool failed) {
    struct verdict *verdict = &handle->step.verdict;
    if (handle->step.head_done) { /* in the middle of the answer: the received part stays */
        char message[CURL_ERROR_SIZE];
        if (why->error == CURLE_PARTIAL_FILE && handle->fast.length >= 0) {
            return cut_off(handle);
        }
        copy_text(message, sizeof message, why->message, why->message_len);
        return fail(handle, why->error > 0 ? (CURLcode)why->error : CURLE_RECV_ERROR, message);
    }
    verdict->kind = failed ? VERDICT_FAILED : VERDICT_DECLINED;
    note_refusal(verdict, why);
    return CURLE_OK;
}

static CURLcode lost(const struct handle *handle) {
    if (!handle->step.head_done) {
        return fail(handle, CURLE_GOT_NOTHING, "Empty reply from server");
    }
    return handle->fast.length >= 0
               ? cut_off(handle)
               : fail(handle, CURLE_RECV_ERROR, "Recv failure: Connection reset by peer");
}

static CURLcode late(const struct handle *handle) {
    const struct fast *fast = &handle->fast;
    char message[CURL_ERROR_SIZE];
    long spent = (long)((monotonic_microseconds() - handle->began) / 1000);
    if (fast->length >= 0) {
        snprintf(message, sizeof message,
            "Operation timed out after %ld milliseconds with %lld out of %lld bytes received",
            spent, (long long)fast->received, (long long)fast->length);
    } else {
        snprintf(message, sizeof message,
            "Operation timed out after %ld milliseconds with %lld bytes received", spent,
            (long long)fast->received);
    }
    return fail(handle, CURLE_OPERATION_TIMEDOUT, message);
}

/* Continues to the next event. False: it was the last one, with `result`. */
static bool take_in(struct handle *handle, enum exchange_event event,
    const struct exchange_news *news, CURLcode *result) {
    bool taken = true;
    switch (event) {
    case EXCHANGE_INTERIM:
        taken = hand_over_lines(handle, news->bytes, news->len, true);
        break;
    case EXCHANGE_ANSWER:
        note_answer(handle, &news->answer);
        taken = hand_over_lines(handle, news->answer.head, news->answer.head_len, true);
        break;
    case EXCHANGE_TRAILERS:
        taken = hand_over_lines(handle, news->bytes, news->len, false);
        break;
    case EXCHANGE_BODY:
        *result = hand_over_body(handle, news->bytes, news->len);
        return *result == CURLE_OK;
    case EXCHANGE_END:
        *result = CURLE_OK;
        return false;
    case EXCHANGE_DECLINED:
    case EXCHANGE_FAILED:
        *result = refused(handle, &news->why, event == EXCHANGE_FAILED);
        return false;
    case EXCHANGE_UNREAD:
        *result = CURLE_COULDNT_CONNECT;
        return false;
    case EXCHANGE_LOST:
        *result = lost(handle);
        return false;
    case EXCHANGE_LATE:
        *result = late(handle);
        return false;
    }
    if (!taken) {
        *result = fail_to_write(handle, "Failed writing header");
    }
    return taken;
}

static CURLcode exchange_with_broker(struct handle *handle) {
    struct exchange_news news;
    CURLcode result = CURLE_COULDNT_CONNECT;
    long limit = handle_number(handle, CURLOPT_TIMEOUT_MS, 0);
    struct exchange_call call = {
        .socket = settings_socket(),
        .token = settings_token,
        /* each wish has `, ` before it */
        .control = handle->control.len > 2 ? handle->control.bytes + 2 : "",
        .control_len = handle->control.len > 2 ? handle->control.len - 2 : 0,
        .head = handle->request.bytes,
        .head_len = handle->request.len,
        .body = fast_has_body(handle) ? handle->fields : NULL,
        .body_len = handle->fields_len,
        .deadline = limit > 0 ? handle->began + (curl_off_t)limit * 1000 : INT64_MAX,
    };
    if (call.body_len == 0) {
        call.body = NULL;
    }
    struct exchange *exchange = exchange_begin(&call);
    handle->fast.prepared = monotonic_microseconds();
    if (exchange == NULL) {
        return result;
    }
    handle->fast.request_size = (curl_off_t)handle->request.len;
    handle->fast.sent = fast_has_body(handle) ? (curl_off_t)handle->fields_len : 0;
    while (take_in(handle, exchange_next(exchange, &news), &news, &result)) {
    }
    if (strcmp(handle->step.verdict.reason, "token") == 0) {
        exchange_drop(exchange);
    } else {
        exchange_end(exchange);
    }
    return result;
}

CURLcode fast_perform(struct handle *handle) {
    struct fast *fast = &handle->fast;
    curl_off_t began = monotonic_microseconds();
    fail(handle, CURLE_OK, "");
    CURLcode result = exchange_with_broker(handle);
    if (result == CURLE_COULDNT_CONNECT) {
        /* The broker closed before it had read the call: another broker may listen by now. */
        result = exchange_with_broker(handle);
    }
    fast->total = monotonic_microseconds() - began;
    fast->prepared -= began;
    fast->first_byte = fast->first_byte > 0 ? fast->first_byte - began : 0;
    count += result != CURLE_COULDNT_CONNECT;
    return result;
}
