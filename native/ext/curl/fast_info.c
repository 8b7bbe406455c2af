/* CURLINFO of a step that was made without libcurl (fast.h). */
#include "ext/curl/fast.h"

static bool text_info(const struct handle *handle, CURLINFO info, const char **text) {
    const struct fast *fast = &handle->fast;
    bool lower_case = libcurl_version >= 0x080900;
    switch ((int)info) {
    case CURLINFO_EFFECTIVE_URL:
        *text = fast->url;
        return handle->way ==
               WAY_FAST; /* after the call info.c provides it, unless another URL was set */
    case CURLINFO_CONTENT_TYPE:
        *text = fast->content_type;
        return true;
    case CURLINFO_LOCAL_IP:
        *text = "";
        return true;
    case CURLINFO_SCHEME:
        *text = lower_case ? "http" : "HTTP"; /* info.c makes it https */
        return true;
    case 0x10003a: /* CURLINFO_EFFECTIVE_METHOD, 7.72 */
        *text = handle_text(handle, CURLOPT_CUSTOMREQUEST);
        *text = *text != NULL ? *text : fast->method;
        return true;
    case CURLINFO_REDIRECT_URL:
    case CURLINFO_RTSP_SESSION_ID:
    case CURLINFO_FTP_ENTRY_PATH:
        *text = NULL;
        return true;
    default:
        return false;
    }
}

static bool number_info(const struct fast *fast, CURLINFO info, long *number) {
    switch ((int)info) {
    case CURLINFO_RESPONSE_CODE:
        *number = fast->status;
        return true;
    case CURLINFO_REQUEST_SIZE:
        *number = (long)fast->request_size;
        return true;
    case CURLINFO_HTTP_VERSION:
        *number = fast->http_version;
        return true;
    case CURLINFO_PROTOCOL:
        *number = CURLPROTO_HTTP;
        return true;
    case CURLINFO_NUM_CONNECTS:
        *number = 1; /* info.c: or none */
        return true;
    case CURLINFO_HTTPAUTH_AVAIL:
        *number = (long)fast->sign_in;
        return true;
    case CURLINFO_FILETIME:
    case CURLINFO_LASTSOCKET:
        *number = -1;
        return true;
    case CURLINFO_HEADER_SIZE: /* info.c provides it */
    case CURLINFO_SSL_VERIFYRESULT:
    case CURLINFO_REDIRECT_COUNT:
    case CURLINFO_LOCAL_PORT:
    case CURLINFO_OS_ERRNO:
    case CURLINFO_HTTP_CONNECTCODE:
    case CURLINFO_PROXYAUTH_AVAIL:
    case CURLINFO_PROXY_SSL_VERIFYRESULT:
    case CURLINFO_CONDITION_UNMET:
    case CURLINFO_PROXY_ERROR:
        *number = 0;
        return true;
    default:
        return false;
    }
}

static bool offset_info(const struct fast *fast, CURLINFO info, curl_off_t *offset) {
    curl_off_t total = fast->total > 0 ? fast->total : 1;
    switch ((int)info) {
    case CURLINFO_TOTAL_TIME_T:
        *offset = fast->total;
        return true;
    case CURLINFO_NAMELOOKUP_TIME_T:
    case CURLINFO_CONNECT_TIME_T:
    case CURLINFO_PRETRANSFER_TIME_T:
        *offset = fast->prepared;
        return true;
    case CURLINFO_STARTTRANSFER_TIME_T:
        *offset = fast->first_byte;
        return true;
    case CURLINFO_APPCONNECT_TIME_T:
    case CURLINFO_REDIRECT_TIME_T:
        *offset = 0;
        return true;
    case CURLINFO_SIZE_UPLOAD_T:
        *offset = fast->sent;
        return true;
    case CURLINFO_SIZE_DOWNLOAD_T:
        *offset = fast->received;
        return true;
    case CURLINFO_SPEED_UPLOAD_T:
        *offset = fast->sent * 1000000 / total;
        return true;
    case CURLINFO_SPEED_DOWNLOAD_T:
        *offset = fast->received * 1000000 / total;
        return true;
    case CURLINFO_CONTENT_LENGTH_DOWNLOAD_T:
        *offset = fast->length;
        return true;
    case CURLINFO_CONTENT_LENGTH_UPLOAD_T:
        *offset = fast->sent;
        return true;
    case CURLINFO_RETRY_AFTER:
        *offset = fast->retry_after;
        return true;
    case CURLINFO_FILETIME_T:
        *offset = -1;
        return true;
    default:
        return false;
    }
}

/* Provides the values in their older form. */
static CURLINFO exact(CURLINFO info) {
    switch ((int)info) {
    case CURLINFO_SIZE_UPLOAD:
        return CURLINFO_SIZE_UPLOAD_T;
    case CURLINFO_SIZE_DOWNLOAD:
        return CURLINFO_SIZE_DOWNLOAD_T;
    case CURLINFO_SPEED_UPLOAD:
        return CURLINFO_SPEED_UPLOAD_T;
    case CURLINFO_SPEED_DOWNLOAD:
        return CURLINFO_SPEED_DOWNLOAD_T;
    case CURLINFO_CONTENT_LENGTH_DOWNLOAD:
        return CURLINFO_CONTENT_LENGTH_DOWNLOAD_T;
    case CURLINFO_CONTENT_LENGTH_UPLOAD:
        return CURLINFO_CONTENT_LENGTH_UPLOAD_T;
    default:
        return CURLINFO_NONE;
    }
}

CURLcode fast_info(const struct handle *handle, CURLINFO info, void *value) {
    curl_off_t offset;
    if (exact(info) != CURLINFO_NONE && offset_info(&handle->fast, exact(info), &offset)) {
        *(double *)value = (double)offset;
        return CURLE_OK;
    }
    bool known = false;
    switch ((int)info & CURLINFO_TYPEMASK) {
    case CURLINFO_STRING:
        known = text_info(handle, info, value);
        break;
    case CURLINFO_LONG:
        known = number_info(&handle->fast, info, value);
        break;
    case CURLINFO_OFF_T:
        known = offset_info(&handle->fast, info, value);
        break;
    default:
        break;
    }
    /* the remaining values belong to the handle, not to the transfer */
    return known ? CURLE_OK : libcurl.easy_getinfo(handle->curl, info, value);
}
