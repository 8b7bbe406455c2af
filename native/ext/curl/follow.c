/* See follow.h. */
#include "ext/curl/follow.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "ext/curl/info.h"
#include "ext/curl/route.h"

/* In our own memory: memory of libcurl's must be freed by curl_free(). */
static char *part_of(CURLU *url, CURLUPart part) {
    char *text = NULL;
    char *copy = NULL;
    if (libcurl.url_get(url, part, &text, 0) == CURLUE_OK && text != NULL) {
        copy = strdup(text);
        libcurl.free(text);
    }
    return copy;
}

char *follow_resolve(
    const struct handle *handle, const char *base, const char *location, bool lenient) {
    CURLU *url = libcurl.url();
    char *result = NULL;
    unsigned flags = CURLU_ALLOW_SPACE | (lenient ? CURLU_NON_SUPPORT_SCHEME : CURLU_URLENCODE);
    unsigned as_is = handle_number(handle, CURLOPT_PATH_AS_IS, 0) != 0 ? CURLU_PATH_AS_IS : 0;
    flags |= as_is;
    if (url != NULL &&
        libcurl.url_set(url, CURLUPART_URL, base, CURLU_ALLOW_SPACE | as_is) == CURLUE_OK &&
        libcurl.url_set(url, CURLUPART_URL, location, flags) == CURLUE_OK) {
        result = part_of(url, CURLUPART_URL);
    }
    libcurl.url_cleanup(url);
    return result;
}

/* Copies the URL without credentials and fragment. */
static char *referer_of(const char *from) {
    CURLU *url = libcurl.url();
    char *result = NULL;
    if (url != NULL && libcurl.url_set(url, CURLUPART_URL, from, CURLU_ALLOW_SPACE) == CURLUE_OK) {
        libcurl.url_set(url, CURLUPART_FRAGMENT, NULL, 0);
        libcurl.url_set(url, CURLUPART_USER, NULL, 0);
        libcurl.url_set(url, CURLUPART_PASSWORD, NULL, 0);
        result = part_of(url, CURLUPART_URL);
    }
    libcurl.url_cleanup(url);
    return result;
}

/* Returns whether the redirect makes the request a GET; a HEAD stays one. */
static bool becomes_get(const struct handle *handle, int status) {
    if (handle->onward.get || handle->step_method == METHOD_GET ||
        handle->step_method == METHOD_HEAD) {
        return handle->onward.get;
    }
    bool posts = handle->step_method == METHOD_POST || handle->step_method == METHOD_MIME;
    long keeps = handle_number(handle, CURLOPT_POSTREDIR, 0);
    switch (status) {
    case 301:
        return posts && (keeps & CURL_REDIR_POST_301) == 0;
    case 302:
        return posts && (keeps & CURL_REDIR_POST_302) == 0;
    case 303:
        return !posts || (keeps & CURL_REDIR_POST_303) == 0;
    default:
        return false;
    }
}

static bool same_host(const struct target *a, const struct target *b) {
    size_t len = (size_t)(a->host_end - a->host);
    return len == (size_t)(b->host_end - b->host) && strncasecmp(a->host, b->host, len) == 0;
}

/* CURLOPT_REDIR_PROTOCOLS; without it http, https and ftp(s). */
static bool may_lead_to(const struct handle *handle, bool https) {
    const char *names = handle_text(handle, CURLOPT_REDIR_PROTOCOLS_STR);
    long mask = handle_number(handle, CURLOPT_REDIR_PROTOCOLS, CURLPROTO_HTTP | CURLPROTO_HTTPS);
    if (names != NULL) {
        return route_names_protocol(names, https ? "https" : "http");
    }
    return (mask & (https ? CURLPROTO_HTTPS : CURLPROTO_HTTP)) != 0;
}

CURLcode follow(struct handle *handle, struct onward *next, const char **message) {
    static char text[64];
    *next = (struct onward){0};
    long most = handle_number(handle, CURLOPT_MAXREDIRS, -1);
    if (most != -1 && handle->sums.redirects >= most) {
        snprintf(text, sizeof text, "Maximum (%ld) redirects followed", most);
        *message = text;
        return CURLE_TOO_MANY_REDIRECTS;
    }
    const char *here = info_effective_url(handle);
    char *url = follow_resolve(handle, here, handle->step.location, false);
    struct target first;
    struct target target;
    if (url == NULL) {
        *message = "The redirect target URL could not be parsed";
        return CURLE_URL_MALFORMAT;
    }
    bool known = target_read(url, &target);
    if (known ? !may_lead_to(handle, target.https)
              : strncasecmp(url, "http://", 7) != 0 && strncasecmp(url, "https://", 8) != 0) {
        free(url);
        *message = "Protocol not supported or disabled in libcurl in redirect";
        return CURLE_UNSUPPORTED_PROTOCOL;
    }
    next->get = becomes_get(handle, handle->step.status);
    if (handle->streamed && !next->get && (handle->given.len > 0 || handle->given_lost)) {
        free(url);
        *message = "necessary data rewind wasn't possible";
        return CURLE_SEND_FAIL_REWIND;
    }
    bool readable = known && target_read(handle_text(handle, CURLOPT_URL), &first);
    next->url = url;
    next->other_host = !readable || !same_host(&first, &target);
    next->anonymous = handle_number(handle, CURLOPT_UNRESTRICTED_AUTH, 0) == 0 &&
                      (next->other_host || first.https != target.https ||
                          target_port(&first) != target_port(&target));
    if (handle_number(handle, CURLOPT_AUTOREFERER, 0) != 0) {
        next->referer = referer_of(here);
    }
    return CURLE_OK;
}
