/* See cookies.h. Parses Set-Cookie like libcurl's lib/cookie.c (RFC 6265, 5.2), and passes it on
 * as a line of a cookie file. */
#include "ext/curl/cookies.h"

#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <time.h>

#include "ext/curl/route.h"

static const char field[] = "Set-Cookie:";

/* Checks the fourth of a line's fields, which are separated by tabs. */
static bool is_secure_line(const char *line) {
    for (int i = 0; i < 3 && line != NULL; i++) {
        line = strchr(line, '\t');
        line = line != NULL ? line + 1 : NULL;
    }
    return line != NULL && strncmp(line, "TRUE\t", 5) == 0;
}

bool cookies_any_secure(const struct handle *handle) {
    struct curl_slist *cookies = NULL;
    bool any = false;
    if (libcurl.easy_getinfo(handle->curl, CURLINFO_COOKIELIST, &cookies) == CURLE_OK) {
        for (const struct curl_slist *cookie = cookies; cookie != NULL; cookie = cookie->next) {
            any |= is_secure_line(cookie->data);
        }
        libcurl.slist_free_all(cookies);
    }
    return any;
}

/* One part of Set-Cookie, without surrounding blanks. Borrowed from the line. */
struct part {
    const char *name, *name_end, *value, *value_end;
};

static void trim(const char **begin, const char **end) {
    while (*begin < *end && (unsigned char)**begin <= ' ') {
        ++*begin;
    }
    while (*end > *begin && (unsigned char)(*end)[-1] <= ' ') {
        --*end;
    }
}

/* Reads the next part and moves `at` behind it. False: there is none. */
static bool next_part(const char **at, struct part *part) {
    if (*at == NULL || **at == '\0') {
        return false;
    }
    const char *end = *at + strcspn(*at, ";");
    const char *equals = memchr(*at, '=', (size_t)(end - *at));
    part->name = *at;
    part->name_end = equals != NULL ? equals : end;
    part->value = equals != NULL ? equals + 1 : end;
    part->value_end = end;
    trim(&part->name, &part->name_end);
    trim(&part->value, &part->value_end);
    *at = *end == ';' ? end + 1 : end;
    return true;
}

static bool is(const struct part *part, const char *name) {
    size_t len = strlen(name);
    return (size_t)(part->name_end - part->name) == len && strncasecmp(part->name, name, len) == 0;
}

void cookies_note(struct handle *handle, const char *line, size_t len) {
    if (!handle->https || !handle->cookie_engine || len < strlen(field) ||
        strncasecmp(line, field, strlen(field)) != 0) {
        return;
    }
    char *copy = strndup(line + strlen(field), len - strlen(field));
    const char *at = copy;
    struct part part;
    bool secure = false;
    while (next_part(&at, &part)) {
        secure |= is(&part, "secure");
    }
    struct curl_slist *longer = secure ? libcurl.slist_append(handle->step.cookies, copy) : NULL;
    if (longer != NULL) {
        handle->step.cookies = longer;
    }
    free(copy);
}

/* Returns whether `host` may set cookies for all of `domain`. Public suffixes are checked if
 * libcurl checks them (libpsl). */
static bool may_set_for(const char *host, const char *domain) {
    size_t host_len = strlen(host);
    size_t len = strlen(domain);
    unsigned char address[sizeof(struct in6_addr)];
    if (strcasecmp(host, domain) == 0) {
        return true;
    }
    if (len == 0 || len + 1 >= host_len || host[host_len - len - 1] != '.' ||
        strcasecmp(host + host_len - len, domain) != 0 || inet_pton(AF_INET, host, address) == 1) {
        return false;
    }
    const void *(*builtin)(void) = (const void *(*)(void))libcurl_neighbour("psl_builtin");
    int (*acceptable)(const void *, const char *, const char *) = (int (*)(const void *,
        const char *, const char *))libcurl_neighbour("psl_is_cookie_domain_acceptable");
    return builtin != NULL && acceptable != NULL && acceptable(builtin(), host, domain) != 0;
}

struct cookie {
    char *domain, *path;
    bool tail; /* also for the hosts below the domain */
    bool http_only;
    curl_off_t expires; /* seconds; 0: with the session */
    bool aged;          /* Max-Age was given: it overrides Expires */
    bool refused;
};

static char *text_of(const char *begin, const char *end) {
    return strndup(begin, (size_t)(end - begin));
}

static void read_attribute(struct cookie *cookie, const struct part *part, const char *host) {
    char *value = text_of(part->value, part->value_end);
    if (is(part, "domain") && *value != '\0') {
        const char *domain = *value == '.' ? value + 1 : value;
        cookie->refused |= !may_set_for(host, domain);
        free(cookie->domain);
        cookie->domain = strdup(domain);
        cookie->tail = true;
    } else if (is(part, "path") && *value == '/') {
        free(cookie->path);
        cookie->path = strdup(value);
    } else if (is(part, "max-age")) {
        long seconds = strtol(value + (*value == '"'), NULL, 10);
        cookie->aged = true;
        cookie->expires = seconds > 0 ? (curl_off_t)time(NULL) + seconds : 1;
    } else if (is(part, "expires") && !cookie->aged) {
        time_t when = libcurl.getdate(value, NULL);
        cookie->expires = when < 0 ? 0 : when == 0 ? 1 : (curl_off_t)when;
    } else if (is(part, "httponly")) {
        cookie->http_only = true;
    }
    free(value);
}

/* Returns the folder of the URL's path. */
static char *default_path(const struct target *target) {
    const char *path = target->authority_end;
    size_t len = strcspn(path, "?#");
    while (len > 1 && path[len - 1] != '/') {
        len--;
    }
    if (len > 1) {
        len--; /* the slash itself */
    }
    return *path == '/' ? strndup(path, len) : strdup("/");
}

static void store(const struct handle *handle, const struct target *target, const char *text) {
    struct part pair;
    struct part attribute;
    const char *at = text;
    if (!next_part(&at, &pair) || pair.name == pair.name_end ||
        memchr(text, '\t', strlen(text)) != NULL) {
        return;
    }
    struct cookie cookie = {text_of(target->host, target->host_end), default_path(target), false,
        false, 0, false, false};
    char *host = strdup(cookie.domain);
    while (next_part(&at, &attribute)) {
        read_attribute(&cookie, &attribute, host);
    }
    char *line;
    if (asprintf(&line, "%s%s\t%s\t%s\tTRUE\t%" CURL_FORMAT_CURL_OFF_T "\t%.*s\t%.*s",
            cookie.http_only ? "#HttpOnly_" : "", cookie.domain, cookie.tail ? "TRUE" : "FALSE",
            cookie.path, cookie.expires, (int)(pair.name_end - pair.name), pair.name,
            (int)(pair.value_end - pair.value), pair.value) < 0) {
        abort();
    }
    if (!cookie.refused) {
        libcurl.easy_setopt(handle->curl, CURLOPT_COOKIELIST, line);
    }
    free(line);
    free(host);
    free(cookie.domain);
    free(cookie.path);
}

void cookies_store(struct handle *handle, const char *url) {
    struct target target;
    if (handle->step.cookies != NULL && url != NULL && target_read(url, &target)) {
        for (const struct curl_slist *text = handle->step.cookies; text != NULL;
             text = text->next) {
            store(handle, &target, text->data);
        }
    }
    libcurl.slist_free_all(handle->step.cookies);
    handle->step.cookies = NULL;
}
