/* See route.h. */
#include "ext/curl/route.h"

#include <arpa/inet.h>
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "ext/curl/cookies.h"
#include "ext/curl/multi_limits.h"
#include "ext/curl/settings.h"

static bool same(const char *begin, const char *end, const char *text) {
    size_t len = strlen(text);
    return (size_t)(end - begin) == len && strncasecmp(begin, text, len) == 0;
}

/* libcurl makes an address out of `127.1` and `0x7f000001`: a host that ends in a number must be an address in full. */
static bool is_plain_host(const char *begin, const char *end) {
    char host[256];
    size_t len = (size_t)(end - begin);
    if (len == 0 || len >= sizeof host) {
        return false;
    }
    memcpy(host, begin, len);
    host[len] = '\0';
    if (host[0] == '[') {
        struct in6_addr address;
        host[len - 1] = '\0';
        return begin[len - 1] == ']' && inet_pton(AF_INET6, host + 1, &address) == 1;
    }
    if (strspn(host, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.-_") != len ||
        host[len - 1] == '.') {
        return false;
    }
    const char *dot = strrchr(host, '.');
    struct in_addr address;
    return !isdigit((unsigned char)(dot != NULL ? dot[1] : host[0])) ||
           inet_pton(AF_INET, host, &address) == 1;
}

bool target_read(const char *url, struct target *target) {
    *target = (struct target){0};
    target->https = strncasecmp(url, "https://", 8) == 0;
    if (!target->https && strncasecmp(url, "http://", 7) != 0) {
        return false;
    }
    target->authority = url + (target->https ? 8 : 7);
    target->authority_end = target->authority + strcspn(target->authority, "/?#");
    const char *at =
        memrchr(target->authority, '@', (size_t)(target->authority_end - target->authority));
    target->has_user = at != NULL;
    target->host = at != NULL ? at + 1 : target->authority;
    const char *bracket = *target->host == '[' ? memchr(target->host, ']',
                                                     (size_t)(target->authority_end - target->host))
                                               : NULL;
    const char *colon =
        bracket != NULL ? bracket + 1 : target->host + strcspn(target->host, ":/?#");
    target->host_end = colon;
    target->port = target->port_end = target->authority_end;
    if (colon < target->authority_end) {
        target->port = colon + 1;
        size_t digits = strspn(target->port, "0123456789");
        if (*colon != ':' || digits == 0 || digits > 5 ||
            target->port + digits != target->authority_end) {
            return false;
        }
    }
    long port = target_port(target);
    return is_plain_host(target->host, target->host_end) && port > 0 && port < 65536;
}

long target_port(const struct target *target) {
    if (target->port == target->port_end) {
        return target->https ? 443 : 80;
    }
    return strtol(target->port, NULL, 10);
}

/* Like libcurl's curl_getenv(): an empty value counts as none. */
static bool is_set(const char *name) {
    const char *value = getenv(name);
    return value != NULL && *value != '\0';
}

/* lib/url.c of libcurl, detect_proxy(): `http_proxy` in lower case only. */
static bool environment_names_proxy(bool https) {
    static const char *const any[] = {"all_proxy", "ALL_PROXY"};
    static const char *const plain[] = {"http_proxy"};
    static const char *const secure[] = {"https_proxy", "HTTPS_PROXY"};
    const char *const *own = https ? secure : plain;
    bool found = false;
    for (size_t i = 0; i < (https ? 2 : 1) && !found; i++) {
        found = is_set(own[i]);
    }
    for (size_t i = 0; i < 2 && !found; i++) {
        found = is_set(any[i]);
    }
    return found;
}

bool route_names_protocol(const char *names, const char *wanted) {
    if (strcasecmp(names, "all") == 0) {
        return true;
    }
    while (*names != '\0') {
        size_t len = strcspn(names, ",");
        if (same(names, names + len, wanted)) {
            return true;
        }
        names += len + (names[len] == ',');
    }
    return false;
}

static bool may_use_protocol(const struct handle *handle, bool https) {
    long mask = handle_number(handle, CURLOPT_PROTOCOLS, CURLPROTO_HTTP | CURLPROTO_HTTPS);
    const char *names = handle_text(handle, CURLOPT_PROTOCOLS_STR);
    return (mask & (https ? CURLPROTO_HTTPS : CURLPROTO_HTTP)) != 0 &&
           (names == NULL || route_names_protocol(names, https ? "https" : "http"));
}

/* A string of structured fields (RFC 8941, 3.3.3). False: it cannot be one. */
static bool add_string(struct text *control, const char *key, const char *value) {
    text_append(control, ", ", 2);
    text_append(control, key, strlen(key));
    text_append(control, "=\"", 2);
    const char *from = value;
    for (; *value != '\0'; value++) {
        if (*value < ' ' || *value > '~') {
            return false;
        }
        if (*value == '"' || *value == '\\') {
            text_append(control, from, (size_t)(value - from));
            text_append(control, "\\", 1);
            from = value;
        }
    }
    text_append(control, from, (size_t)(value - from));
    text_append(control, "\"", 1);
    return true;
}

static void add_raw(struct text *control, const char *text) {
    text_append(control, ", ", 2);
    text_append(control, text, strlen(text));
}

/* The broker's working directory is another. */
static bool add_path(struct text *control, const char *key, const char *path) {
    return path == NULL || (path[0] == '/' && add_string(control, key, path));
}

static bool add_versions(struct text *control, long versions) {
    switch (versions & 0xffff) {
    case CURL_SSLVERSION_DEFAULT:
    case CURL_SSLVERSION_TLSv1:
    case CURL_SSLVERSION_TLSv1_0: /* the broker supports more: it declines if that matters */
    case CURL_SSLVERSION_TLSv1_1:
        break;
    case CURL_SSLVERSION_TLSv1_2:
        add_raw(control, "tls-min=1.2");
        break;
    case CURL_SSLVERSION_TLSv1_3:
        add_raw(control, "tls-min=1.3");
        break;
    default:
        return false;
    }
    switch (versions & ~0xffffL) {
    case CURL_SSLVERSION_MAX_NONE:
    case CURL_SSLVERSION_MAX_DEFAULT:
        break;
    case CURL_SSLVERSION_MAX_TLSv1_2:
        add_raw(control, "tls-max=1.2");
        break;
    case CURL_SSLVERSION_MAX_TLSv1_3:
        add_raw(control, "tls-max=1.3");
        break;
    default:
        return false;
    }
    return true;
}

static bool is_pem(const struct handle *handle, CURLoption option) {
    const char *type = handle_text(handle, option);
    return type == NULL || strcasecmp(type, "PEM") == 0;
}

static bool add_tls(struct text *control, const struct handle *handle) {
    bool peer = handle_number(handle, CURLOPT_SSL_VERIFYPEER, 1) != 0;
    bool host = handle_number(handle, CURLOPT_SSL_VERIFYHOST, 2) != 0;
    if (peer != host) {
        return false; /* half a verification is no service of the broker's */
    }
    if (!peer) {
        add_raw(control, "verify=?0");
    } else if (!add_path(control, "ca", handle_text(handle, CURLOPT_CAINFO))) {
        return false;
    }
    const char *certificate = handle_text(handle, CURLOPT_SSLCERT);
    const char *key = handle_text(handle, CURLOPT_SSLKEY);
    if (certificate != NULL &&
        (!is_pem(handle, CURLOPT_SSLCERTTYPE) || !is_pem(handle, CURLOPT_SSLKEYTYPE) ||
            !add_path(control, "cert", certificate) ||
            !add_path(control, "key", key != NULL ? key : certificate))) {
        return false;
    }
    const char *pin = handle_text(handle, CURLOPT_PINNEDPUBLICKEY);
    if (pin != NULL && (strncmp(pin, "sha256//", 8) != 0 || !add_string(control, "pin", pin))) {
        return false;
    }
    return add_versions(control, handle_number(handle, CURLOPT_SSLVERSION, 0));
}

static bool add_connection(struct text *control, const struct handle *handle, bool https) {
    switch (handle_number(handle, CURLOPT_HTTP_VERSION, CURL_HTTP_VERSION_NONE)) {
    case CURL_HTTP_VERSION_NONE:
    case CURL_HTTP_VERSION_2TLS:
        break;
    case CURL_HTTP_VERSION_1_1:
        add_raw(control, "http=1.1");
        break;
    case CURL_HTTP_VERSION_2_0:
        if (!https) {
            return false; /* libcurl would ask for an upgrade */
        }
        break;
    default:
        return false;
    }
    switch (handle_number(handle, CURLOPT_IPRESOLVE, CURL_IPRESOLVE_WHATEVER)) {
    case CURL_IPRESOLVE_V4:
        add_raw(control, "ip=4");
        break;
    case CURL_IPRESOLVE_V6:
        add_raw(control, "ip=6");
        break;
    default:
        break;
    }
    const char *interface = handle_text(handle, CURLOPT_INTERFACE);
    struct in6_addr address;
    if (interface != NULL && ((inet_pton(AF_INET, interface, &address) != 1 &&
                                  inet_pton(AF_INET6, interface, &address) != 1) ||
                                 !add_string(control, "interface", interface))) {
        return false;
    }
    long timeout = handle_number(handle, CURLOPT_CONNECTTIMEOUT_MS, 0);
    if (timeout > 0) {
        char limit[48];
        snprintf(limit, sizeof limit, "connect-timeout=%ld", timeout);
        add_raw(control, limit);
    }
    return true;
}

bool route_control(const struct handle *handle, bool https, struct text *control) {
    return (!https || add_tls(control, handle)) && add_connection(control, handle, https);
}

/* Only the login that libcurl sends unasked: other schemes answer a challenge, or belong to a
 * connection. */
static bool may_authenticate(const struct handle *handle) {
    if (handle_text(handle, CURLOPT_USERPWD) == NULL &&
        handle_text(handle, CURLOPT_USERNAME) == NULL &&
        handle_text(handle, CURLOPT_XOAUTH2_BEARER) == NULL) {
        return true;
    }
    unsigned long schemes = (unsigned long)handle_number(handle, CURLOPT_HTTPAUTH, CURLAUTH_BASIC);
    return schemes == CURLAUTH_BASIC || schemes == CURLAUTH_BEARER;
}

bool route_is_field(const char *line, const char *name) {
    size_t len = strlen(name);
    return strncasecmp(line, name, len) == 0 && (line[len] == ':' || line[len] == ';');
}

/* Returns whether a Host field of the caller's names the target itself. */
static bool names_target(const char *line, const struct target *target) {
    if (line[strlen("Host")] == ';') {
        return false; /* a Host field without value */
    }
    const char *value = line + strlen("Host:");
    value += strspn(value, " \t");
    const char *end = value + strlen(value);
    const char *port = target->port == target->port_end ? target->host_end : target->port_end;
    return same(value, end, "") ||
           ((size_t)(end - value) == (size_t)(port - target->host) &&
               strncasecmp(value, target->host, (size_t)(end - value)) == 0);
}

bool route_withholds(const struct handle *handle, const char *line) {
    return handle->onward.anonymous &&
           (route_is_field(line, "Authorization") || route_is_field(line, "Cookie"));
}

static bool add_header(struct handle *handle, const char *line) {
    struct curl_slist *longer = libcurl.slist_append(handle->headers, line);
    if (longer != NULL) {
        handle->headers = longer;
    }
    return longer != NULL;
}

/* The broker takes these fields for its own hop, and the origin would not get them. */
static bool is_for_one_hop(const char *line) {
    return route_is_field(line, "Upgrade") || route_is_field(line, "Proxy-Authorization");
}

/* The caller's fields, without those that do not go with the request. An application that forwards
 * its clients' fields must not forward an option to the broker. */
static bool copy_headers(struct handle *handle, const struct target *target) {
    const struct curl_slist *field = handle_pointer(handle, CURLOPT_HTTPHEADER);
    for (; field != NULL; field = field->next) {
        const char *line = field->data;
        /* a blank at the beginning would continue the field before */
        if (line[strcspn(line, "\r\n")] != '\0' || *line == ' ' || *line == '\t' ||
            is_for_one_hop(line)) {
            return false;
        }
        if (strncasecmp(line, "Hearth-", strlen("Hearth-")) == 0 || route_withholds(handle, line)) {
            continue;
        }
        if (route_is_field(line, "Host")) {
            if (handle->onward.other_host) {
                continue;
            }
            if (!names_target(line, target)) {
                return false;
            }
        }
        if (!add_header(handle, line)) {
            return false;
        }
    }
    return true;
}

static bool has_field(const struct handle *handle, const char *name) {
    const struct curl_slist *field = handle_pointer(handle, CURLOPT_HTTPHEADER);
    while (field != NULL && !route_is_field(field->data, name)) {
        field = field->next;
    }
    return field != NULL;
}

/* libcurl waits for `100 Continue` before it sends a large body, but not over HTTP/2, which most
 * origins with TLS speak. The hop does not need it, because sent data are kept (answer_read()). */
static bool expects_nothing(const struct handle *handle, const struct target *target) {
    return target->https &&
           handle_number(handle, CURLOPT_HTTP_VERSION, CURL_HTTP_VERSION_NONE) !=
               CURL_HTTP_VERSION_1_1 &&
           !has_field(handle, "Expect");
}

static bool add_own_headers(struct handle *handle, const struct target *target) {
    const char *token = settings_token();
    if (token == NULL || (expects_nothing(handle, target) && !add_header(handle, "Expect:"))) {
        return false;
    }
    struct text line = {NULL, 0, 0};
    static const char control[] = "Hearth-Control: timing, token=\"";
    text_append(&line, control, strlen(control));
    text_append(&line, token, strlen(token));
    text_append(&line, "\"", 1);
    bool done = route_control(handle, target->https, &line);
    limits_write(handle->limits, &line);
    text_append(&line, "", 1);
    done = done && add_header(handle, line.bytes);
    handle->own_bytes = (long)(line.len - 1 + 2);

    free(handle->origin);
    handle->origin = NULL;
    const char *end = target->port == target->port_end ? target->host_end : target->port_end;
    if (asprintf(&handle->origin, "%s://%.*s", target->https ? "https" : "http",
            (int)(end - target->host), target->host) < 0) {
        abort();
    }
    text_clear(&line);
    text_append(&line, "Hearth-Origin: ", strlen("Hearth-Origin: "));
    text_append(&line, handle->origin, strlen(handle->origin) + 1);
    done = done && add_header(handle, line.bytes);
    handle->own_bytes += (long)(line.len - 1 + 2);
    /* one line each */
    for (const char *trace = settings_trace(); done && *trace != '\0';) {
        size_t len = strcspn(trace, "\r");
        text_clear(&line);
        text_append(&line, trace, len);
        text_append(&line, "", 1);
        done = add_header(handle, line.bytes);
        handle->own_bytes += (long)(len + 2);
        trace += len + 2;
    }
    text_free(&line);
    return done;
}

/* The same URL with `http`, which libcurl sends to the broker without TLS; everything else in it keeps its meaning. */
static char *url_without_tls(struct handle *handle, const char *url, const struct target *target) {
    char *result;
    handle->cut_port = target->https && same(target->port, target->port_end, "443");
    if (!target->https) {
        result = strdup(url);
    } else if (asprintf(&result, "http://%.*s%s",
                   (int)((handle->cut_port ? target->host_end : target->authority_end) -
                         target->authority),
                   target->authority, target->authority_end) < 0) {
        abort();
    }
    return result;
}

/* libcurl ends such a call with an error if the answer is no part, unless it follows a redirect itself. */
static bool resumes(const struct handle *handle) {
    return handle_number(handle, CURLOPT_RESUME_FROM, 0) != 0 ||
           handle_number(handle, CURLOPT_RESUME_FROM_LARGE, 0) != 0;
}

bool route_allows(struct handle *handle, const char *url, struct target *target) {
    if (settings_socket() == NULL || handle_forbids(handle) || !target_read(url, target)) {
        return false;
    }
    const char *proxy = handle_text(handle, CURLOPT_PROXY);
    if (proxy != NULL ? *proxy != '\0' : environment_names_proxy(target->https)) {
        return false;
    }
    CURLSH *share = handle_pointer(handle, CURLOPT_SHARE);
    bool cookies = (share != NULL && share_has_cookies(share)) || handle->cookie_files ||
                   (handle->cookie_engine && target->https && cookies_any_secure(handle));
    long follow = handle_number(handle, CURLOPT_FOLLOWLOCATION, 0);
    const char *request = handle_text(handle, CURLOPT_CUSTOMREQUEST);
    if ((target->https && (cookies || target_port(target) == 80)) || follow > 1 ||
        (follow != 0 && (target->has_user || resumes(handle))) ||
        (request != NULL && strcasecmp(request, "CONNECT") == 0) ||
        !may_use_protocol(handle, target->https) || !may_authenticate(handle)) {
        return false;
    }
    handle->https = target->https;
    return true;
}

char *route_to_broker(struct handle *handle, const char *url, const struct target *target) {
    libcurl.slist_free_all(handle->headers);
    handle->headers = NULL;
    if (!copy_headers(handle, target) || !add_own_headers(handle, target)) {
        return NULL;
    }
    return url_without_tls(handle, url, target);
}

void route_directly(struct handle *handle, const char *url) {
    struct target target;
    libcurl.slist_free_all(handle->headers);
    handle->headers = NULL;
    for (const struct curl_slist *field = handle_pointer(handle, CURLOPT_HTTPHEADER); field != NULL;
         field = field->next) {
        const char *line = field->data;
        if (route_withholds(handle, line)) {
            continue;
        }
        if (!route_is_field(line, "Host") ||
            (!handle->onward.other_host && target_read(url, &target))) {
            add_header(handle, line);
        }
    }
}
