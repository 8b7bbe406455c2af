/* What fast.c sends: which calls are simple enough, and their heads, as libcurl writes them (lib/http.c, Curl_http(), 7.68 to 8.x). */
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "ext/curl/fast.h"
#include "ext/curl/inflate.h"
#include "ext/curl/settings.h"

static void add(struct text *text, const char *bytes) {
    text_append(text, bytes, strlen(bytes));
}

static void add_field(struct text *head, const char *name, const char *value) {
    add(head, name);
    text_append(head, ": ", 2);
    add(head, value);
    text_append(head, "\r\n", 2);
}

static bool has_field(const struct handle *handle, const char *name) {
    const struct curl_slist *field = handle_pointer(handle, CURLOPT_HTTPHEADER);
    while (field != NULL && !route_is_field(field->data, name)) {
        field = field->next;
    }
    return field != NULL;
}

/* Returns whether curl_url_get() would return the URL unchanged, so that no other parser is
 * needed. */
static bool is_plain_url(const char *url, const struct target *target) {
    static const char plain[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789"
                                "-._~/?&=+,;:@!$'()*%";
    const char *rest = target->authority_end;
    if (target->has_user || strncmp(url, target->https ? "https://" : "http://", 7) != 0 ||
        (target->port != target->port_end && *target->port == '0')) {
        return false;
    }
    for (const char *at = target->host; at < target->host_end; at++) {
        if (isupper((unsigned char)*at)) {
            return false;
        }
    }
    /* dots may be segments that libcurl removes */
    return (*rest == '\0' || *rest == '/') && rest[strspn(rest, plain)] == '\0' &&
           strstr(rest, "/.") == NULL && strcasestr(rest, "%2e") == NULL;
}

static const char *method_of(const struct handle *handle) {
    const char *custom = handle_text(handle, CURLOPT_CUSTOMREQUEST);
    if (custom != NULL) {
        return custom;
    }
    if (handle->onward.get) {
        return "GET";
    }
    return handle->method == METHOD_HEAD ? "HEAD" : handle->method == METHOD_POST ? "POST" : "GET";
}

static bool is_token(const char *text) {
    static const char token[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    return *text != '\0' && text[strspn(text, token)] == '\0';
}

bool fast_has_body(const struct handle *handle) {
    return handle->method == METHOD_POST && !handle->onward.get;
}

/* These fields ask for more than a line in the head. */
static bool is_special(const char *line) {
    static const char *const special[] = {"Content-Length", "Transfer-Encoding", "TE", "Upgrade",
        "HTTP2-Settings", "Proxy-Authorization"};
    for (size_t i = 0; i < sizeof special / sizeof *special; i++) {
        if (route_is_field(line, special[i])) {
            return true;
        }
    }
    return route_is_field(line, "Expect") &&
           line[strlen("Expect:") + strspn(line + 7, " \t")] != '\0';
}

/* Like Curl_add_custom_headers(): `Name:` only removes libcurl's own field, `Name;` is a field
 * without value, and only if nothing follows it. False: use libcurl. */
static bool add_custom(
    struct text *head, const struct handle *handle, const char *host, size_t host_len) {
    const struct curl_slist *field = handle_pointer(handle, CURLOPT_HTTPHEADER);
    for (; field != NULL; field = field->next) {
        const char *line = field->data;
        if (line[strcspn(line, "\r\n")] != '\0' || *line == ' ' || *line == '\t' ||
            is_special(line)) {
            return false;
        }
        if (strncasecmp(line, "Hearth-", strlen("Hearth-")) == 0 || route_withholds(handle, line)) {
            continue;
        }
        const char *colon = strchr(line, ':');
        if (route_is_field(line, "Host")) { /* libcurl sends it instead of its own */
            const char *named = line + 5 + strspn(line + 5, " \t");
            if (colon == NULL || strlen(named) != host_len || strncmp(named, host, host_len) != 0) {
                return false;
            }
            continue;
        }
        const char *end = colon != NULL ? colon : strchr(line, ';');
        if (end == NULL || end == line) {
            continue;
        }
        const char *value = end + 1 + strspn(end + 1, " \t\v\f");
        if (colon != NULL && *value != '\0') {
            add(head, line);
        } else if (colon == NULL && end[1] == '\0') {
            text_append(head, line, (size_t)(end - line));
            text_append(head, ":", 1);
        } else {
            continue;
        }
        text_append(head, "\r\n", 2);
    }
    return true;
}

static void add_unless(
    struct text *head, const struct handle *handle, const char *name, const char *value) {
    if (value != NULL && !has_field(handle, name)) {
        add_field(head, name, value);
    }
}

static bool write_head(struct handle *handle, const struct target *target) {
    struct text *head = &handle->request;
    const char *rest = target->authority_end;
    const char *port = target->port == target->port_end ? target->host_end : target->port_end;
    const char *referer = handle->onward.referer;
    bool usual = target_port(target) == (target->https ? 443 : 80);
    text_clear(head);
    add(head, method_of(handle));
    add(head, target->https ? " https://" : " http://");
    text_append(head, target->host, (size_t)(port - target->host));
    add(head, *rest == '\0' ? "/" : rest);
    add(head, " HTTP/1.1\r\nHost: ");
    size_t host_len = (size_t)((usual ? target->host_end : port) - target->host);
    text_append(head, target->host, host_len);
    add(head, "\r\n");
    add_unless(head, handle, "User-Agent", handle_text(handle, CURLOPT_USERAGENT));
    add_unless(head, handle, "Accept", "*/*");
    add_unless(head, handle, "Accept-Encoding", handle_text(handle, CURLOPT_ACCEPT_ENCODING));
    add_unless(
        head, handle, "Referer", referer != NULL ? referer : handle_text(handle, CURLOPT_REFERER));
    if (!handle->onward.anonymous) {
        add_unless(head, handle, "Cookie", handle_text(handle, CURLOPT_COOKIE));
    }
    if (!add_custom(head, handle, target->host, host_len)) {
        return false;
    }
    if (fast_has_body(handle)) {
        char length[32];
        snprintf(length, sizeof length, "%zu", handle->fields_len);
        add_field(head, "Content-Length", length);
        add_unless(head, handle, "Content-Type", "application/x-www-form-urlencoded");
    }
    const char *trace = settings_trace();
    add(head, trace);
    handle->own_bytes = (long)strlen(trace);
    add(head, "\r\n");
    return true;
}

/* Returns whether the body can be decoded as libcurl would. If the application sets
 * Accept-Encoding itself, its fields decide what the origin may use, not the option. A field
 * without a value (Guzzle removes libcurl's own so) counts as gzip: the usual coding. */
static bool can_decode(const struct handle *handle) {
    static const char name[] = "Accept-Encoding";
    const char *codings = handle_text(handle, CURLOPT_ACCEPT_ENCODING);
    if (codings == NULL) {
        return true;
    }
    if (!has_field(handle, name)) {
        return inflater_knows(codings);
    }
    const struct curl_slist *field = handle_pointer(handle, CURLOPT_HTTPHEADER);
    for (; field != NULL; field = field->next) {
        if (!route_is_field(field->data, name)) {
            continue;
        }
        const char *value = field->data + sizeof name; /* behind `:` or `;` */
        value += strspn(value, " \t");
        if (!inflater_knows(*value != '\0' ? value : "gzip")) {
            return false;
        }
    }
    return true;
}

/* Returns whether libcurl would end the call behind the head although the request line is not
 * HEAD's, or would leave the body out: CURLOPT_NOBODY with CURLOPT_CUSTOMREQUEST, or before
 * CURLOPT_POSTFIELDS. */
static bool stops_behind_head(const struct handle *handle) {
    return handle->no_body &&
           (handle->method != METHOD_HEAD || strcmp(method_of(handle), "HEAD") != 0);
}

bool fast_prepare(struct handle *handle, const char *url, const struct target *target) {
    enum { LARGEST = 60000 }; /* of a head; the listener's limit is 65536 */
    bool made_here = handle->method == METHOD_GET || handle->method == METHOD_HEAD ||
                     (handle->method == METHOD_POST && handle->fields != NULL);
    if (!settings_frames() || handle_is_slow(handle) || handle->cookie_engine || !made_here ||
        !is_plain_url(url, target) || !is_token(method_of(handle)) || stops_behind_head(handle) ||
        !can_decode(handle)) {
        return false;
    }
    text_clear(&handle->control);
    if (!route_control(handle, target->https, &handle->control) || !write_head(handle, target) ||
        handle->request.len > LARGEST || handle->control.len > LARGEST) {
        return false;
    }
    struct fast *fast = &handle->fast;
    if (asprintf(&fast->url, "%s%s", url, *target->authority_end == '\0' ? "/" : "") < 0) {
        abort();
    }
    fast->made = true;
    fast->length = -1;
    fast->method = handle->onward.get              ? "GET"
                   : handle->method == METHOD_HEAD ? "HEAD"
                   : handle->method == METHOD_POST ? "POST"
                                                   : "GET";
    handle->cut_port = false;
    return true;
}
