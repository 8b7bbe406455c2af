/* See hop.h. */
#include "ext/curl/hop.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ext/curl/answer.h"
#include "ext/curl/cookies.h"
#include "ext/curl/fast.h"
#include "ext/curl/follow.h"
#include "ext/curl/info.h"
#include "ext/curl/route.h"
#include "ext/curl/settings.h"
#include "ext/monotonic.h"

#define SET(handle, option, value) libcurl.easy_setopt((handle)->curl, (option), (value))

/* Text options that are overruled on the way to another origin. */
static const CURLoption credentials[] = {
    CURLOPT_USERPWD, CURLOPT_USERNAME, CURLOPT_PASSWORD, CURLOPT_XOAUTH2_BEARER, CURLOPT_COOKIE};
enum { CREDENTIALS = sizeof credentials / sizeof *credentials };

static bool is_credential(CURLoption option) {
    for (size_t i = 0; i < CREDENTIALS; i++) {
        if (credentials[i] == option) {
            return true;
        }
    }
    return false;
}

bool hop_holds(const struct handle *handle, CURLoption option) {
    switch ((int)option) {
    case CURLOPT_READDATA:
    case CURLOPT_READFUNCTION:
        return handle->way == WAY_BROKER || handle->way == WAY_DIRECT;
    case CURLOPT_DEBUGDATA:
    case CURLOPT_DEBUGFUNCTION:
    case CURLOPT_HEADER:
    case CURLOPT_HEADERDATA:
    case CURLOPT_HEADERFUNCTION:
    case CURLOPT_HTTP_VERSION:
    case CURLOPT_NOSIGNAL:
    case CURLOPT_PROTOCOLS:
    case CURLOPT_PROTOCOLS_STR:
    case CURLOPT_WRITEDATA:
    case CURLOPT_WRITEFUNCTION:
        return handle->way == WAY_BROKER;
    case CURLOPT_FOLLOWLOCATION:
    case CURLOPT_HTTPHEADER:
    case CURLOPT_MAXREDIRS:
    case CURLOPT_REFERER:
    case CURLOPT_URL:
        return handle->way == WAY_BROKER ||
               (handle->way == WAY_DIRECT && handle->onward.url != NULL);
    default:
        return handle->way != WAY_NONE && handle->way != WAY_FAST && handle->onward.url != NULL &&
               is_credential(option);
    }
}

static void set_text(const struct handle *handle, CURL *curl, CURLoption option) {
    libcurl.easy_setopt(curl, option, handle_text(handle, option));
}

static void set_pointer(const struct handle *handle, CURL *curl, CURLoption option) {
    libcurl.easy_setopt(curl, option, handle_pointer(handle, option));
}

static void set_method(const struct handle *handle, CURL *curl) {
    switch (handle->method) {
    case METHOD_GET:
        break;
    case METHOD_HEAD:
        libcurl.easy_setopt(curl, CURLOPT_NOBODY, 1L);
        break;
    case METHOD_POST:
        libcurl.easy_setopt(curl, CURLOPT_POST, 1L);
        break;
    case METHOD_MIME:
        set_pointer(handle, curl, CURLOPT_MIMEPOST);
        break;
    case METHOD_PUT:
        libcurl.easy_setopt(curl, CURLOPT_UPLOAD, 1L);
        break;
    }
}

/* Applies the changes of a redirect, on either way. */
static void set_onward(const struct handle *handle) {
    const struct onward *onward = &handle->onward;
    if (onward->url == NULL) {
        return;
    }
    if (onward->get) {
        SET(handle, CURLOPT_HTTPGET, 1L);
    }
    if (onward->referer != NULL) {
        SET(handle, CURLOPT_REFERER, onward->referer);
    }
    for (size_t i = 0; onward->anonymous && i < CREDENTIALS; i++) {
        SET(handle, credentials[i], (char *)NULL);
    }
}

static void set_for_broker(struct handle *handle, const char *url) {
    SET(handle, CURLOPT_URL, url);
    SET(handle, CURLOPT_HTTPHEADER, handle->headers);
    SET(handle, CURLOPT_UNIX_SOCKET_PATH, settings_socket());
    SET(handle, CURLOPT_NOSIGNAL, 1L);
    handle->quiet = true;
    SET(handle, CURLOPT_WRITEFUNCTION, answer_body);
    SET(handle, CURLOPT_WRITEDATA, handle);
    SET(handle, CURLOPT_HEADERFUNCTION, answer_header);
    SET(handle, CURLOPT_HEADERDATA, handle);
    SET(handle, CURLOPT_HEADER, 0L);
    SET(handle, CURLOPT_FOLLOWLOCATION, 0L);
    SET(handle, CURLOPT_HTTP_VERSION, (long)CURL_HTTP_VERSION_1_1);
    SET(handle, CURLOPT_PROTOCOLS, (long)(CURLPROTO_HTTP | CURLPROTO_HTTPS));
    if (handle->streamed) {
        SET(handle, CURLOPT_READFUNCTION, answer_read);
        SET(handle, CURLOPT_READDATA, handle);
    }
    SET(handle, CURLOPT_DEBUGFUNCTION, answer_debug);
    SET(handle, CURLOPT_DEBUGDATA, handle);
    set_onward(handle);
}

/* The application's own options again. */
static void put_back(const struct handle *handle, CURL *curl) {
    set_text(handle, curl, CURLOPT_URL);
    set_pointer(handle, curl, CURLOPT_HTTPHEADER);
    libcurl.easy_setopt(curl, CURLOPT_UNIX_SOCKET_PATH, (char *)NULL);
    set_pointer(handle, curl, CURLOPT_WRITEFUNCTION);
    set_pointer(handle, curl, CURLOPT_WRITEDATA);
    set_pointer(handle, curl, CURLOPT_HEADERFUNCTION);
    set_pointer(handle, curl, CURLOPT_HEADERDATA);
    libcurl.easy_setopt(curl, CURLOPT_HEADER, handle_number(handle, CURLOPT_HEADER, 0));
    libcurl.easy_setopt(
        curl, CURLOPT_FOLLOWLOCATION, handle_number(handle, CURLOPT_FOLLOWLOCATION, 0));
    libcurl.easy_setopt(curl, CURLOPT_HTTP_VERSION,
        handle_number(handle, CURLOPT_HTTP_VERSION, CURL_HTTP_VERSION_NONE));
    const char *protocols = handle_text(handle, CURLOPT_PROTOCOLS_STR);
    if (protocols != NULL) {
        libcurl.easy_setopt(curl, CURLOPT_PROTOCOLS_STR, protocols);
    } else {
        libcurl.easy_setopt(
            curl, CURLOPT_PROTOCOLS, handle_number(handle, CURLOPT_PROTOCOLS, CURLPROTO_ALL));
    }
    set_pointer(handle, curl, CURLOPT_READFUNCTION);
    set_pointer(handle, curl, CURLOPT_READDATA);
    set_pointer(handle, curl, CURLOPT_DEBUGFUNCTION);
    set_pointer(handle, curl, CURLOPT_DEBUGDATA);
    libcurl.easy_setopt(curl, CURLOPT_TIMEOUT_MS, handle_number(handle, CURLOPT_TIMEOUT_MS, 0));
    if (handle->onward.url == NULL) {
        return;
    }
    if (handle->onward.get) {
        set_method(handle, curl);
    }
    libcurl.easy_setopt(curl, CURLOPT_MAXREDIRS, handle_number(handle, CURLOPT_MAXREDIRS, -1));
    set_text(handle, curl, CURLOPT_REFERER);
    for (size_t i = 0; i < CREDENTIALS; i++) {
        set_text(handle, curl, credentials[i]);
    }
}

static void restore_signals(const struct handle *handle, CURL *curl) {
    if (handle->quiet) {
        libcurl.easy_setopt(curl, CURLOPT_NOSIGNAL, handle_number(handle, CURLOPT_NOSIGNAL, 0));
    }
}

void hop_restore_signals(struct handle *handle) {
    restore_signals(handle, handle->curl);
    handle->quiet = false;
}

void hop_restore_copy(const struct handle *handle, CURL *copy) {
    restore_signals(handle, copy);
    if (handle->way != WAY_NONE && handle->way != WAY_FAST) {
        put_back(handle, copy);
    }
}

static void clear_step(struct handle *handle) {
    struct step *step = &handle->step;
    struct text head = step->head;
    text_clear(&head);
    free(step->location);
    libcurl.slist_free_all(step->cookies);
    *step = (struct step){.head = head};
}

static void clear_onward(struct handle *handle) {
    free(handle->onward.url);
    free(handle->onward.referer);
    handle->onward = (struct onward){0};
}

static bool begin_step(struct handle *handle, const char *url) {
    struct target target;
    clear_step(handle);
    handle_clear_fast(handle);
    if (!route_allows(handle, url, &target)) {
        return false;
    }
    if (handle->alone && fast_prepare(handle, url, &target)) {
        handle->way = WAY_FAST;
        handle->by_broker = true;
        return true;
    }
    char *broker_url = route_to_broker(handle, url, &target);
    if (broker_url == NULL) {
        return false;
    }
    handle->way = WAY_BROKER;
    handle->by_broker = true;
    set_for_broker(handle, broker_url);
    free(broker_url);
    return true;
}

static bool is_streamed(const struct handle *handle) {
    return handle->method == METHOD_PUT ||
           (handle->method == METHOD_POST && handle_pointer(handle, CURLOPT_POSTFIELDS) == NULL &&
               handle_pointer(handle, CURLOPT_COPYPOSTFIELDS) == NULL);
}

bool hop_begin(struct handle *handle, bool alone) {
    const char *url = handle_text(handle, CURLOPT_URL);
    handle->by_broker = false;
    handle->alone = alone;
    if (alone) {
        handle->limits = NULL;
    }
    handle_clear_fast(handle);
    handle->sums = (struct sums){0};
    info_forget(handle);
    clear_onward(handle);
    text_clear(&handle->given);
    handle->given_again = 0;
    handle->given_bytes = 0;
    handle->given_lost = handle->given_end = false;
    handle->streamed = is_streamed(handle);
    /* lib/url.c, Curl_init_do(): without a body the call is a HEAD, and redirects leave it one */
    handle->step_method = handle->no_body ? METHOD_HEAD : handle->method;
    if (url == NULL || settings_socket() == NULL) {
        return false;
    }
    handle->began = monotonic_microseconds();
    return begin_step(handle, url);
}

static void clear_error(const struct handle *handle) {
    char *buffer = handle_pointer(handle, CURLOPT_ERRORBUFFER);
    if (buffer != NULL) {
        buffer[0] = '\0';
    }
}

static CURLcode fail(const struct handle *handle, CURLcode code, const char *message) {
    char *buffer = handle_pointer(handle, CURLOPT_ERRORBUFFER);
    if (buffer != NULL) {
        snprintf(buffer, CURL_ERROR_SIZE, "%s", message);
    }
    return code;
}

/* Returns the rest of the time that the application allows for the whole call. */
static void set_time_left(const struct handle *handle) {
    long limit = handle_number(handle, CURLOPT_TIMEOUT_MS, 0);
    long spent = (long)((monotonic_microseconds() - handle->began) / 1000);
    if (limit > 0 && spent > 0) {
        SET(handle, CURLOPT_TIMEOUT_MS, spent < limit ? limit - spent : 1L);
    }
}

/* Makes the step directly. A redirect from here on is libcurl's. */
static void set_for_direct(struct handle *handle) {
    handle->way = WAY_DIRECT;
    handle->by_broker = false;
    handle_clear_fast(handle);
    hop_restore_signals(handle);
    if (handle->given.len > 0 || handle->given_end) {
        SET(handle, CURLOPT_READFUNCTION, answer_read_again);
        SET(handle, CURLOPT_READDATA, handle);
    }
    set_time_left(handle);
    if (handle->onward.url != NULL) {
        route_directly(handle, handle->onward.url);
        SET(handle, CURLOPT_URL, handle->onward.url);
        SET(handle, CURLOPT_HTTPHEADER, handle->headers);
        long most = handle_number(handle, CURLOPT_MAXREDIRS, -1);
        if (most >= 0) {
            SET(handle, CURLOPT_MAXREDIRS,
                most > handle->sums.redirects ? most - handle->sums.redirects : 0L);
        }
        set_onward(handle);
    }
}

/* The application's options, where libcurl holds others. */
static void take_back(const struct handle *handle) {
    if (handle->way != WAY_FAST) {
        put_back(handle, handle->curl);
    }
}

static void end_call(struct handle *handle) {
    if (handle->way == WAY_BROKER || handle->way == WAY_FAST) {
        info_remember(handle);
    }
    if (handle->way == WAY_BROKER) {
        cookies_store(handle, info_effective_url(handle));
    }
    take_back(handle);
    if (handle->multi == NULL) {
        hop_restore_signals(handle);
    }
    handle->way = WAY_NONE;
    text_free(&handle->given);
}

void hop_abandon(struct handle *handle) {
    if (handle->way != WAY_NONE) {
        answer_flush(handle);
        end_call(handle);
    }
}

/* The broker closed before it sent anything. A call that may be repeated is made again, as any
 * HTTP client does. */
static bool may_repeat(const struct handle *handle, CURLcode result) {
    const char *request = handle_text(handle, CURLOPT_CUSTOMREQUEST);
    bool lost =
        result == CURLE_SEND_ERROR || result == CURLE_RECV_ERROR || result == CURLE_GOT_NOTHING;
    return lost && handle->step.status == 0 && request == NULL &&
           (handle->method == METHOD_GET || handle->method == METHOD_HEAD || handle->onward.get);
}

/* The time is over: the direct way would find the same, only later. */
static bool is_late(const struct handle *handle) {
    return handle->step.verdict.error == CURLE_OPERATION_TIMEDOUT &&
           strcmp(handle->step.verdict.reason, "queue") != 0;
}

static CURLcode late(const struct handle *handle) {
    char message[CURL_ERROR_SIZE];
    snprintf(message, sizeof message, "Connection timed out after %ld milliseconds",
        (long)((monotonic_microseconds() - handle->began) / 1000));
    return fail(handle, CURLE_OPERATION_TIMEDOUT, message);
}

/* The broker got nothing: none listens, or its backlog is full. */
static bool is_unreachable(const struct handle *handle, CURLcode result) {
    return result == CURLE_COULDNT_CONNECT ||
           (result == CURLE_SEND_ERROR && handle->step.status == 0 &&
               info_request_size(handle) == 0);
}

/* Returns whether the step must be made directly. */
static bool turns_back(struct handle *handle, CURLcode result) {
    const struct verdict *verdict = &handle->step.verdict;
    if (is_unreachable(handle, result)) {
        settings_notice("no broker listens there");
        return true;
    }
    if (verdict->kind == VERDICT_DECLINED) {
        if (strcmp(verdict->reason, "token") == 0) {
            settings_forget_token();
        }
        return !is_late(handle);
    }
    return may_repeat(handle, result);
}

static bool go_directly(struct handle *handle, CURLcode *result) {
    if (handle->given_lost) {
        *result = fail(handle, CURLE_SEND_FAIL_REWIND, "necessary data rewind was not possible");
        end_call(handle);
        return false;
    }
    take_back(handle);
    clear_error(handle);
    set_for_direct(handle);
    return true;
}

/* Prepares the step to a redirect's target. False: there is none. */
static bool go_onward(struct handle *handle, CURLcode *result) {
    const char *message = NULL;
    struct onward next;
    CURLcode code = follow(handle, &next, &message);
    if (code != CURLE_OK) {
        *result = fail(handle, code, message);
        end_call(handle);
        return false;
    }
    info_add_up(handle);
    if (handle->way == WAY_BROKER) {
        cookies_store(handle, info_effective_url(handle));
    }
    take_back(handle);
    clear_onward(handle);
    handle->onward = next;
    info_forget(handle);
    if (!begin_step(handle, handle->onward.url)) {
        set_for_direct(handle);
    } else if (handle->way == WAY_BROKER) {
        set_time_left(handle);
    }
    return true;
}

CURLcode hop_perform(struct handle *handle) {
    return handle->way == WAY_FAST ? fast_perform(handle) : libcurl.easy_perform(handle->curl);
}

bool hop_end(struct handle *handle, CURLcode *result) {
    if (handle->way == WAY_DIRECT) {
        end_call(handle);
        return false;
    }
    if (!answer_flush(handle) && *result == CURLE_OK) {
        *result = CURLE_WRITE_ERROR;
    }
    if (turns_back(handle, *result)) {
        return go_directly(handle, result);
    }
    const struct verdict *verdict = &handle->step.verdict;
    if (verdict->kind == VERDICT_FAILED) {
        CURLcode code = verdict->error > 0 ? (CURLcode)verdict->error : CURLE_RECV_ERROR;
        *result = fail(handle, code, verdict->message);
    } else if (verdict->kind == VERDICT_DECLINED) {
        *result = late(handle);
    } else if (*result == CURLE_OK && handle->step.follows) {
        return go_onward(handle, result);
    }
    end_call(handle);
    return false;
}
