/* The functions that ext-curl calls instead of libcurl's, for single handles. multi.c has the
 * rest. */
#include "ext/curl/multi.h"

#include <stdarg.h>
#include <stdlib.h>

#include "ext/curl/handle.h"
#include "ext/curl/hop.h"
#include "ext/curl/info.h"

static CURL *easy_init(void) {
    CURL *spare = handle_take_spare();
    CURL *curl = spare != NULL ? spare : libcurl.easy_init();
    if (curl != NULL) {
        handle_new(curl);
    }
    return curl;
}

/* libcurl's options have five kinds, by the range of their numbers (curl/curl.h). */
static CURLcode easy_setopt(CURL *curl, CURLoption option, ...) {
    struct handle *handle = handle_of(curl);
    CURLcode code = CURLE_OK;
    long number = 0;
    void *pointer = NULL;
    bool held = handle != NULL && hop_holds(handle, option);
    va_list arguments;
    va_start(arguments, option);
    if ((int)option < CURLOPTTYPE_OBJECTPOINT) {
        number = va_arg(arguments, long);
        code = held ? CURLE_OK : libcurl.easy_setopt(curl, option, number);
    } else if ((int)option >= CURLOPTTYPE_OFF_T && (int)option < CURLOPTTYPE_BLOB) {
        curl_off_t offset = va_arg(arguments, curl_off_t);
        number = offset != 0;
        code = held ? CURLE_OK : libcurl.easy_setopt(curl, option, offset);
    } else {
        pointer = va_arg(arguments, void *);
        code = held ? CURLE_OK : libcurl.easy_setopt(curl, option, pointer);
    }
    va_end(arguments);
    if (handle != NULL && code == CURLE_OK) {
        handle_keep(handle, option, number, pointer);
        if (option == CURLOPT_URL && handle->way == WAY_NONE) {
            /* as in libcurl, this is the effective URL from now on */
            info_forget(handle);
        }
    }
    return code;
}

static CURLcode easy_perform(CURL *curl) {
    struct handle *handle = handle_of(curl);
    if (handle == NULL || handle->way != WAY_NONE || !hop_begin(handle, true)) {
        if (handle != NULL) {
            handle->by_libcurl = true;
        }
        return libcurl.easy_perform(curl);
    }
    CURLcode code;
    do {
        handle->by_libcurl |= handle->way != WAY_FAST;
        code = hop_perform(handle);
    } while (hop_end(handle, &code));
    return code;
}

static CURLcode easy_getinfo(CURL *curl, CURLINFO info, ...) {
    struct handle *handle = handle_of(curl);
    va_list arguments;
    va_start(arguments, info);
    void *value = va_arg(arguments, void *);
    va_end(arguments);
    return handle != NULL ? info_get(handle, info, value) : libcurl.easy_getinfo(curl, info, value);
}

static void easy_reset(CURL *curl) {
    struct handle *handle = handle_of(curl);
    if (handle != NULL && handle->way == WAY_NONE) {
        handle_reset(handle);
    }
    libcurl.easy_reset(curl);
}

static CURL *easy_duphandle(CURL *curl) {
    const struct handle *handle = handle_of(curl);
    CURL *copy = libcurl.easy_duphandle(curl);
    if (copy != NULL && handle != NULL) {
        hop_restore_copy(handle, copy);
        handle_copy(handle, copy);
    }
    return copy;
}

static void easy_cleanup(CURL *curl) {
    struct handle *handle = handle_of(curl);
    if (handle != NULL) {
        multi_forget(handle);
    }
    if (handle == NULL || !handle_spare(handle)) {
        libcurl.easy_cleanup(curl);
    }
    if (handle != NULL) {
        handle_free(handle);
    }
}

static CURLSHcode share_setopt(CURLSH *share, CURLSHoption option, ...) {
    va_list arguments;
    va_start(arguments, option);
    CURLSHcode code;
    if (option == CURLSHOPT_SHARE || option == CURLSHOPT_UNSHARE) {
        int data = va_arg(arguments, int);
        code = libcurl.share_setopt(share, option, data);
        if (code == CURLSHE_OK && data == CURL_LOCK_DATA_COOKIE) {
            share_keep(share, option == CURLSHOPT_SHARE);
        }
    } else {
        code = libcurl.share_setopt(share, option, va_arg(arguments, void *));
    }
    va_end(arguments);
    return code;
}

static CURLSHcode share_cleanup(CURLSH *share) {
    CURLSHcode code = libcurl.share_cleanup(share);
    if (code == CURLSHE_OK) {
        share_keep(share, false);
    }
    return code;
}

const struct libcurl libcurl_replacements = {
    .easy_init = easy_init,
    .easy_setopt = easy_setopt,
    .easy_perform = easy_perform,
    .easy_getinfo = easy_getinfo,
    .easy_reset = easy_reset,
    .easy_duphandle = easy_duphandle,
    .easy_cleanup = easy_cleanup,
    .multi_add_handle = multi_add_handle,
    .multi_remove_handle = multi_remove_handle,
    .multi_perform = multi_perform,
    .multi_info_read = multi_info_read,
    .multi_cleanup = multi_cleanup,
    .multi_setopt = multi_setopt,
    .share_setopt = share_setopt,
    .share_cleanup = share_cleanup,
};
