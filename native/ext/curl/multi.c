/* See multi.h. A finished handle may have to run again (hop.h), so libcurl's reports are read here
 * first. Reports of calls that are really over wait in our own queue, bounded by the number of
 * handles. */
#include "ext/curl/multi.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "ext/curl/hop.h"
#include "ext/curl/multi_limits.h"
#include "ext/curl/settings.h"

struct message {
    CURLMsg message;
    struct message *next;
};

struct multi {
    CURLM *multi;
    struct multi *next;
    struct handle *added; /* not started yet */
    size_t under_way;     /* handles whose call is at the broker, or came from there */
    struct limits limits;
    struct message *first, **end;
    CURLMsg read; /* the last one handed out */
};

static struct multi *multis;

static struct multi *multi_of(CURLM *curl) {
    struct multi *multi = multis;
    while (multi != NULL && multi->multi != curl) {
        multi = multi->next;
    }
    return multi;
}

static struct multi *multi_make(CURLM *curl) {
    struct multi *multi = calloc(1, sizeof *multi);
    if (multi == NULL) {
        abort();
    }
    *multi = (struct multi){.multi = curl, .next = multis, .end = &multi->first};
    limits_init(&multi->limits, curl);
    multis = multi;
    return multi;
}

static void drop_messages(struct multi *multi, const CURL *of) {
    struct message **place = &multi->first;
    while (*place != NULL) {
        struct message *message = *place;
        if (of == NULL || message->message.easy_handle == of) {
            *place = message->next;
            free(message);
        } else {
            place = &message->next;
        }
    }
    multi->end = place;
}

static void push(struct multi *multi, CURL *curl, CURLcode result) {
    struct message *message = calloc(1, sizeof *message);
    if (message == NULL) {
        abort();
    }
    message->message.msg = CURLMSG_DONE;
    message->message.easy_handle = curl;
    message->message.data.result = result;
    *multi->end = message;
    multi->end = &message->next;
}

/* Counts the call as one at the broker, if it is there. */
static void note_place(struct multi *multi, struct handle *handle) {
    bool there = handle->multi == multi->multi && handle->way == WAY_BROKER;
    if (there != handle->at_broker) {
        handle->at_broker = there;
        multi->limits.hops += there ? 1 : (size_t)-1;
    }
}

static void leave(struct multi *multi, struct handle *handle) {
    if (multi != NULL && handle->multi != NULL) {
        multi->under_way--;
    }
    handle->multi = NULL;
    if (multi != NULL) {
        note_place(multi, handle);
        limits_forget(&multi->limits, handle);
    }
    handle->limits = NULL;
}

/* A handle's way is decided when it starts: until then the application may still set options. */
CURLMcode multi_add_handle(CURLM *curl_multi, CURL *curl) {
    struct handle *handle = handle_of(curl);
    struct multi *multi = multi_of(curl_multi);
    if (handle != NULL) {
        handle->by_libcurl = true;
    }
    if (multi != NULL && handle != NULL && limits_holds(&multi->limits, handle)) {
        return CURLM_ADDED_ALREADY;
    }
    CURLMcode code = libcurl.multi_add_handle(curl_multi, curl);
    if (code != CURLM_OK || handle == NULL || handle->way != WAY_NONE ||
        settings_socket() == NULL) {
        return code;
    }
    if (multi == NULL) {
        multi = multi_make(curl_multi);
    }
    handle->next_added = multi->added;
    multi->added = handle;
    return code;
}

static void start_added(struct multi *multi) {
    struct handle *direct = NULL;
    while (multi->added != NULL) {
        struct handle *handle = multi->added;
        multi->added = handle->next_added;
        handle->next_added = NULL;
        handle->limits = &multi->limits;
        if (hop_begin(handle, false)) {
            multi->under_way++;
            handle->multi = multi->multi;
            note_place(multi, handle);
        } else {
            handle->next_added = direct;
            direct = handle;
        }
    }
    /* after the broker's calls: whether direct calls may begin depends on those */
    while (direct != NULL) {
        struct handle *handle = direct;
        direct = handle->next_added;
        handle->next_added = NULL;
        limits_direct(&multi->limits, handle);
    }
}

static void take_from_added(struct multi *multi, const struct handle *handle) {
    struct handle **place = &multi->added;
    while (*place != NULL && *place != handle) {
        place = &(*place)->next_added;
    }
    if (*place != NULL) {
        *place = handle->next_added;
    }
}

CURLMcode multi_remove_handle(CURLM *curl_multi, CURL *curl) {
    struct multi *multi = multi_of(curl_multi);
    struct handle *handle = handle_of(curl);
    CURLMcode code = libcurl.multi_remove_handle(curl_multi, curl);
    if (multi == NULL || code != CURLM_OK) {
        return code;
    }
    drop_messages(multi, curl);
    if (handle != NULL) {
        take_from_added(multi, handle);
        handle->next_added = NULL;
        if (handle->multi == curl_multi) {
            leave(multi, handle);
            hop_abandon(handle);
        } else if (handle->limits == &multi->limits) {
            leave(multi, handle);
        }
        hop_restore_signals(handle);
    }
    return code;
}

/* Handles a call that libcurl reports as done. True: it runs once more. */
static bool settle(struct multi *multi, CURL *curl, CURLcode result) {
    struct handle *handle = handle_of(curl);
    bool again = handle != NULL && handle->multi == multi->multi && hop_end(handle, &result);
    if (again) {
        note_place(multi, handle);
        libcurl.multi_remove_handle(multi->multi, curl);
        if (libcurl.multi_add_handle(multi->multi, curl) == CURLM_OK) {
            if (handle->way == WAY_DIRECT) {
                limits_direct(&multi->limits, handle);
            }
            return true;
        }
        result = CURLE_FAILED_INIT;
        hop_abandon(handle);
    }
    if (handle != NULL && (handle->multi == multi->multi || handle->limits == &multi->limits)) {
        leave(multi, handle);
    }
    push(multi, curl, result);
    return false;
}

CURLMcode multi_perform(CURLM *curl_multi, int *running) {
    struct multi *multi = multi_of(curl_multi);
    if (multi != NULL) {
        start_added(multi);
        limits_apply(&multi->limits);
    }
    CURLMcode code = libcurl.multi_perform(curl_multi, running);
    bool again = multi != NULL && multi->under_way > 0;
    while (again && code == CURLM_OK) {
        int left;
        CURLMsg *message;
        again = false;
        while ((message = libcurl.multi_info_read(curl_multi, &left)) != NULL) {
            again |= settle(multi, message->easy_handle, message->data.result);
        }
        again |= limits_apply(&multi->limits);
        if (again) {
            code = libcurl.multi_perform(curl_multi, running);
        }
    }
    if (multi != NULL && running != NULL) {
        *running += (int)multi->limits.held_count;
    }
    return code;
}

CURLMsg *multi_info_read(CURLM *curl_multi, int *left) {
    struct multi *multi = multi_of(curl_multi);
    if (multi == NULL || multi->first == NULL) {
        CURLMsg *read = libcurl.multi_info_read(curl_multi, left);
        struct handle *handle = multi != NULL && read != NULL ? handle_of(read->easy_handle) : NULL;
        if (handle != NULL && handle->limits == &multi->limits && handle->multi == NULL) {
            leave(multi, handle);
        }
        return read;
    }
    struct message *message = multi->first;
    multi->read = message->message;
    multi->first = message->next;
    if (multi->first == NULL) {
        multi->end = &multi->first;
    }
    free(message);
    *left = 0;
    for (message = multi->first; message != NULL; message = message->next) {
        ++*left;
    }
    return &multi->read;
}

CURLMcode multi_setopt(CURLM *curl_multi, CURLMoption option, ...) {
    CURLMcode code;
    long number = 0;
    va_list arguments;
    va_start(arguments, option);
    if ((int)option < CURLOPTTYPE_OBJECTPOINT) {
        number = va_arg(arguments, long);
        code = libcurl.multi_setopt(curl_multi, option, number);
    } else if ((int)option >= CURLOPTTYPE_OFF_T) {
        code = libcurl.multi_setopt(curl_multi, option, va_arg(arguments, curl_off_t));
    } else {
        code = libcurl.multi_setopt(curl_multi, option, va_arg(arguments, void *));
    }
    va_end(arguments);
    if (code == CURLM_OK && (int)option < CURLOPTTYPE_OBJECTPOINT) {
        struct multi *multi = multi_of(curl_multi);
        limits_keep(&(multi != NULL ? multi : multi_make(curl_multi))->limits, option, number);
    }
    return code;
}

CURLMcode multi_cleanup(CURLM *curl_multi) {
    CURLMcode code = libcurl.multi_cleanup(curl_multi);
    for (struct multi **place = &multis; *place != NULL; place = &(*place)->next) {
        struct multi *multi = *place;
        if (multi->multi == curl_multi) {
            *place = multi->next;
            drop_messages(multi, NULL);
            handles_forget_limits(&multi->limits);
            free(multi);
            break;
        }
    }
    return code;
}

void multi_forget(struct handle *handle) {
    for (struct multi *each = multis; each != NULL; each = each->next) {
        take_from_added(each, handle);
    }
    struct multi *multi = NULL;
    if (handle->multi != NULL || handle->limits != NULL) {
        multi = multi_of(handle->multi != NULL ? handle->multi : handle->limits->multi);
    }
    if (multi != NULL) {
        drop_messages(multi, handle->curl);
        leave(multi, handle);
    }
}
