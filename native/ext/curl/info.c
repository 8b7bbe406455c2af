/* See info.h. */
#include "ext/curl/info.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "ext/curl/fast.h"
#include "ext/curl/follow.h"

/* Times and addresses of the step itself, from the code that made it. */
static CURLcode own_info(const struct handle *handle, CURLINFO info, void *value) {
    return handle->fast.made ? fast_info(handle, info, value)
                             : libcurl.easy_getinfo(handle->curl, info, value);
}

static const char *own_text(const struct handle *handle, CURLINFO info) {
    const char *text = NULL;
    return own_info(handle, info, &text) == CURLE_OK ? text : NULL;
}

static long own_number(const struct handle *handle, CURLINFO info) {
    long number = 0;
    return own_info(handle, info, &number) == CURLE_OK ? number : 0;
}

static curl_off_t own_time(const struct handle *handle, CURLINFO info) {
    curl_off_t time = 0;
    return own_info(handle, info, &time) == CURLE_OK ? time : 0;
}

void info_forget(struct handle *handle) {
    free(handle->effective_url);
    free(handle->redirect_url);
    handle->effective_url = handle->redirect_url = NULL;
}

/* `http://host/` in libcurl becomes `https://host/`, or `https://host:443/` if the application
 * wrote the port. */
static char *true_url(const struct handle *handle, const char *url) {
    char *result;
    if (!handle->https || strncasecmp(url, "http://", 7) != 0) {
        return strdup(url);
    }
    size_t authority = strcspn(url + 7, "/?#");
    if (asprintf(&result, "https://%.*s%s%s", (int)authority, url + 7,
            handle->cut_port ? ":443" : "", url + 7 + authority) < 0) {
        abort();
    }
    return result;
}

const char *info_effective_url(struct handle *handle) {
    if (handle->way == WAY_BROKER || handle->way == WAY_FAST) {
        const char *url = own_text(handle, CURLINFO_EFFECTIVE_URL);
        free(handle->effective_url);
        handle->effective_url = url != NULL ? true_url(handle, url) : NULL;
    }
    return handle->effective_url;
}

static const char *redirect_url(struct handle *handle) {
    if ((handle->way == WAY_BROKER || handle->way == WAY_FAST) && handle->step.location != NULL &&
        handle->redirect_url == NULL && (!handle->step.follows || handle->step.head_done)) {
        const char *base = info_effective_url(handle);
        char *url = base != NULL ? follow_resolve(handle, base, handle->step.location, true) : NULL;
        handle->redirect_url = url != NULL ? url : strdup(handle->step.location);
    }
    return handle->redirect_url;
}

void info_remember(struct handle *handle) {
    info_effective_url(handle);
    redirect_url(handle);
}

static bool failed(const struct handle *handle) {
    return handle->step.verdict.kind != VERDICT_ANSWER;
}

/* The parts of a call's time that only the broker knows, limited to libcurl's own measurements. */
static curl_off_t part_of_time(const struct handle *handle, CURLINFO info) {
    const struct verdict *verdict = &handle->step.verdict;
    curl_off_t own = own_time(handle, info);
    curl_off_t sent = own_time(handle, CURLINFO_PRETRANSFER_TIME_T);
    if (!verdict->timed) {
        return own;
    }
    switch (info) {
    case CURLINFO_NAMELOOKUP_TIME_T:
        return verdict->resolved > 0 ? verdict->resolved : own;
    case CURLINFO_CONNECT_TIME_T:
        return verdict->connected > 0 ? verdict->connected : own;
    case CURLINFO_APPCONNECT_TIME_T:
        return verdict->secured > 0 ? verdict->secured : 0;
    default: { /* CURLINFO_PRETRANSFER_TIME_T */
        curl_off_t ready =
            verdict->secured > verdict->connected ? verdict->secured : verdict->connected;
        return ready > sent ? ready : sent;
    }
    }
}

static curl_off_t time_of(const struct handle *handle, CURLINFO info) {
    const struct sums *sums = &handle->sums;
    curl_off_t step = 0;
    if (handle->by_broker &&
        (info == CURLINFO_NAMELOOKUP_TIME_T || info == CURLINFO_CONNECT_TIME_T ||
            info == CURLINFO_APPCONNECT_TIME_T || info == CURLINFO_PRETRANSFER_TIME_T)) {
        step = part_of_time(handle, info);
    } else {
        step = own_time(handle, info);
    }
    switch (info) {
    case CURLINFO_NAMELOOKUP_TIME_T:
        return step + sums->resolved;
    case CURLINFO_CONNECT_TIME_T:
        return step + sums->connected;
    case CURLINFO_APPCONNECT_TIME_T:
        return step + sums->secured;
    case CURLINFO_PRETRANSFER_TIME_T:
        return step + sums->prepared;
    case CURLINFO_STARTTRANSFER_TIME_T:
        return step + sums->first_byte;
    case CURLINFO_REDIRECT_TIME_T:
        return step + sums->redirect;
    default:
        return step + sums->total;
    }
}

long info_request_size(const struct handle *handle) {
    long size = own_number(handle, CURLINFO_REQUEST_SIZE);
    if (!handle->by_broker || size < handle->own_bytes) {
        return size;
    }
    return size - handle->own_bytes;
}

static long header_size(const struct handle *handle) {
    return handle->by_broker ? handle->step.header_size : own_number(handle, CURLINFO_HEADER_SIZE);
}

static long connects(const struct handle *handle) {
    return handle->by_broker && handle->step.verdict.reused
               ? 0
               : own_number(handle, CURLINFO_NUM_CONNECTS);
}

void info_add_up(struct handle *handle) {
    struct sums sums = handle->sums;
    sums.redirects++;
    sums.connects += connects(handle);
    sums.header_size += header_size(handle);
    sums.request_size += info_request_size(handle);
    sums.resolved = time_of(handle, CURLINFO_NAMELOOKUP_TIME_T);
    sums.connected = time_of(handle, CURLINFO_CONNECT_TIME_T);
    sums.secured = time_of(handle, CURLINFO_APPCONNECT_TIME_T);
    sums.prepared = time_of(handle, CURLINFO_PRETRANSFER_TIME_T);
    sums.first_byte = time_of(handle, CURLINFO_STARTTRANSFER_TIME_T);
    sums.redirect = sums.total = time_of(handle, CURLINFO_TOTAL_TIME_T);
    handle->sums = sums;
}

/* CURLINFO_x_TIME, in seconds, of CURLINFO_x_TIME_T; 0: none. */
static CURLINFO exact(CURLINFO info) {
    switch (info) {
    case CURLINFO_TOTAL_TIME:
        return CURLINFO_TOTAL_TIME_T;
    case CURLINFO_NAMELOOKUP_TIME:
        return CURLINFO_NAMELOOKUP_TIME_T;
    case CURLINFO_CONNECT_TIME:
        return CURLINFO_CONNECT_TIME_T;
    case CURLINFO_APPCONNECT_TIME:
        return CURLINFO_APPCONNECT_TIME_T;
    case CURLINFO_PRETRANSFER_TIME:
        return CURLINFO_PRETRANSFER_TIME_T;
    case CURLINFO_STARTTRANSFER_TIME:
        return CURLINFO_STARTTRANSFER_TIME_T;
    case CURLINFO_REDIRECT_TIME:
        return CURLINFO_REDIRECT_TIME_T;
    default:
        return CURLINFO_NONE;
    }
}

/* The origin's address as the broker named it. Clients that retry take an empty one as a sign that nothing was sent
 * (Symfony's RetryableHttpClient), so a request without a verdict has one, too. */
static const char *origin_address(const struct handle *handle) {
    const struct verdict *verdict = &handle->step.verdict;
    bool undecided = verdict->kind == VERDICT_ANSWER && !handle->step.head_done;
    return undecided && verdict->address[0] == '\0' && own_number(handle, CURLINFO_REQUEST_SIZE) > 0
               ? "unknown"
               : verdict->address;
}

/* Numbers and texts about the connection and the answer. False: libcurl's own value is right. */
static bool broker_knows(struct handle *handle, CURLINFO info, void *value) {
    const struct verdict *verdict = &handle->step.verdict;
    long *number = value;
    char **text = value;
    switch (info) {
    case CURLINFO_EFFECTIVE_URL:
        *text = (char *)info_effective_url(handle);
        return *text != NULL;
    case CURLINFO_REDIRECT_URL:
        *text = (char *)redirect_url(handle);
        return true;
    case CURLINFO_PRIMARY_IP:
        *text = (char *)origin_address(handle);
        return true;
    case CURLINFO_PRIMARY_PORT:
        *number = verdict->port;
        return true;
    case CURLINFO_SCHEME: {
        const char *own = own_text(handle, info);
        if (handle->https && own != NULL) {
            *text = *own == 'h' ? "https" : "HTTPS"; /* lower case from 8.9 on */
        } else {
            *text = (char *)own;
        }
        return true;
    }
    case CURLINFO_PROTOCOL:
        *number = handle->https ? CURLPROTO_HTTPS : own_number(handle, info);
        return true;
    case CURLINFO_HTTP_VERSION:
        *number = failed(handle)                        ? 0
                  : strcmp(verdict->protocol, "2") == 0 ? CURL_HTTP_VERSION_2_0
                                                        : own_number(handle, info);
        return true;
    case CURLINFO_RESPONSE_CODE:
        *number = failed(handle) ? 0 : own_number(handle, info);
        return true;
    case CURLINFO_CONTENT_TYPE:
        *text = failed(handle) ? NULL : (char *)own_text(handle, info);
        return true;
    case CURLINFO_CONTENT_LENGTH_DOWNLOAD_T:
        *(curl_off_t *)value = failed(handle) ? -1 : own_time(handle, info);
        return true;
    case CURLINFO_CONTENT_LENGTH_DOWNLOAD:
        if (failed(handle)) {
            *(double *)value = -1;
        }
        return failed(handle);
    case CURLINFO_SIZE_UPLOAD:
    case CURLINFO_SIZE_UPLOAD_T:
        if (!handle->streamed || strcmp(verdict->protocol, "2") != 0) {
            return false; /* HTTP/2 has no chunks that would count */
        }
        if (info == CURLINFO_SIZE_UPLOAD) {
            *(double *)value = (double)handle->given_bytes;
        } else {
            *(curl_off_t *)value = handle->given_bytes;
        }
        return true;
    case CURLINFO_SIZE_DOWNLOAD:
    case CURLINFO_SPEED_DOWNLOAD:
        if (failed(handle)) {
            *(double *)value = 0;
        }
        return failed(handle);
    default:
        return false;
    }
}

CURLcode info_get(struct handle *handle, CURLINFO info, void *value) {
    const struct sums *sums = &handle->sums;
    if (!handle->by_broker && sums->redirects == 0) {
        return own_info(handle, info, value);
    }
    if (exact(info) != CURLINFO_NONE) {
        *(double *)value = (double)time_of(handle, exact(info)) / 1e6;
        return CURLE_OK;
    }
    switch (info) {
    case CURLINFO_TOTAL_TIME_T:
    case CURLINFO_NAMELOOKUP_TIME_T:
    case CURLINFO_CONNECT_TIME_T:
    case CURLINFO_APPCONNECT_TIME_T:
    case CURLINFO_PRETRANSFER_TIME_T:
    case CURLINFO_STARTTRANSFER_TIME_T:
    case CURLINFO_REDIRECT_TIME_T:
        *(curl_off_t *)value = time_of(handle, info);
        return CURLE_OK;
    case CURLINFO_REDIRECT_COUNT:
        *(long *)value = sums->redirects + own_number(handle, info);
        return CURLE_OK;
    case CURLINFO_NUM_CONNECTS:
        *(long *)value = sums->connects + connects(handle);
        return CURLE_OK;
    case CURLINFO_HEADER_SIZE:
        *(long *)value = sums->header_size + header_size(handle);
        return CURLE_OK;
    case CURLINFO_REQUEST_SIZE:
        *(long *)value = sums->request_size + info_request_size(handle);
        return CURLE_OK;
    default:
        break;
    }
    if (handle->by_broker && broker_knows(handle, info, value)) {
        return CURLE_OK;
    }
    return own_info(handle, info, value);
}
