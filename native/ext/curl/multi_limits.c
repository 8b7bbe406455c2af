/* See multi_limits.h. Lists are searched linearly. They have an entry for each direct call of a
 * multi handle, and exist only if there is a limit. */
#include "ext/curl/multi_limits.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#include "ext/monotonic.h"

/* More than this is no limit: Symfony sets PHP_INT_MAX. */
enum { NO_LIMIT = 1000000 };
/* Connections that libcurl may open while calls are at the broker, because a process's descriptors
 * are limited. */
enum { HOPS = 128 };

void limits_init(struct limits *limits, CURLM *multi) {
    static unsigned long long last;
    /* by the clock too: a snapshot's restore puts the count back */
    unsigned long long id = monotonic_nanoseconds();
    last = id > last ? id : last + 1;
    *limits = (struct limits){.multi = multi, .id = last};
    limits->held_end = &limits->held;
}

static bool any(const struct limits *limits) {
    return limits->host > 0 || limits->total > 0;
}

static void set(const struct limits *limits) {
    long most = limits->host > limits->total ? limits->host : limits->total;
    long hops = most > HOPS ? most : HOPS;
    libcurl.multi_setopt(
        limits->multi, CURLMOPT_MAX_HOST_CONNECTIONS, limits->lifted ? hops : limits->host);
    libcurl.multi_setopt(
        limits->multi, CURLMOPT_MAX_TOTAL_CONNECTIONS, limits->lifted ? hops : limits->total);
}

void limits_keep(struct limits *limits, CURLMoption option, long number) {
    if (option == CURLMOPT_MAX_HOST_CONNECTIONS || option == CURLMOPT_MAX_TOTAL_CONNECTIONS) {
        long limit = number > 0 && number <= NO_LIMIT ? number : 0;
        *(option == CURLMOPT_MAX_HOST_CONNECTIONS ? &limits->host : &limits->total) = limit;
        if (limits->lifted) {
            set(limits);
        }
    }
}

void limits_write(const struct limits *limits, struct text *control) {
    char keys[160];
    if (limits == NULL || !any(limits)) {
        return;
    }
    /* by process: a child of a fork has a copy of the handle */
    int len = snprintf(keys, sizeof keys, ", scope=\"%ld-%llu\"", (long)getpid(), limits->id);
    text_append(control, keys, (size_t)len);
    if (limits->host > 0) {
        len = snprintf(keys, sizeof keys, ", connections=%ld", limits->host);
        text_append(control, keys, (size_t)len);
    }
    if (limits->total > 0) {
        len = snprintf(keys, sizeof keys, ", connections-total=%ld", limits->total);
        text_append(control, keys, (size_t)len);
    }
}

/* Scheme, host and port of where a call goes. */
static const char *url_of(const struct handle *handle, size_t *len) {
    const char *url =
        handle->onward.url != NULL ? handle->onward.url : handle_text(handle, CURLOPT_URL);
    const char *host = url != NULL ? strstr(url, "://") : NULL;
    *len = host == NULL ? 0 : (size_t)(host + 3 - url) + strcspn(host + 3, "/?#");
    return url != NULL ? url : "";
}

static bool same_origin(const struct handle *one, const struct handle *other) {
    size_t len, other_len;
    const char *url = url_of(one, &len);
    const char *other_url = url_of(other, &other_len);
    return len == other_len && strncasecmp(url, other_url, len) == 0;
}

/* Direct calls that are under way: all, and those to the origin of `handle`. */
static void count(const struct limits *limits, const struct handle *handle, size_t counts[2]) {
    counts[0] = counts[1] = 0;
    for (const struct handle *each = limits->direct; each != NULL; each = each->next_direct) {
        counts[0]++;
        counts[1] += same_origin(each, handle);
    }
}

/* Returns whether `more` direct calls have room beside those that are under way. */
static bool has_room(const struct limits *limits, const struct handle *handle, size_t more) {
    size_t counts[2];
    count(limits, handle, counts);
    return (limits->total == 0 || counts[0] + more <= (size_t)limits->total) &&
           (limits->host == 0 || counts[1] + more <= (size_t)limits->host);
}

static void run(struct limits *limits, struct handle *handle) {
    handle->next_direct = limits->direct;
    limits->direct = handle;
}

void limits_direct(struct limits *limits, struct handle *handle) {
    if (any(limits) && limits->hops > 0 && !has_room(limits, handle, 1)) {
        libcurl.multi_remove_handle(limits->multi, handle->curl);
        handle->next_direct = NULL;
        *limits->held_end = handle;
        limits->held_end = &handle->next_direct;
        limits->held_count++;
    } else {
        run(limits, handle);
    }
}

static bool take_out(struct handle **place, const struct handle *handle) {
    while (*place != NULL && *place != handle) {
        place = &(*place)->next_direct;
    }
    bool found = *place != NULL;
    if (found) {
        *place = (*place)->next_direct;
    }
    return found;
}

static void find_end(struct limits *limits) {
    limits->held_end = &limits->held;
    while (*limits->held_end != NULL) {
        limits->held_end = &(*limits->held_end)->next_direct;
    }
}

void limits_forget(struct limits *limits, struct handle *handle) {
    if (take_out(&limits->held, handle)) {
        limits->held_count--;
        find_end(limits);
    } else if (!take_out(&limits->direct, handle)) {
        return;
    }
    handle->next_direct = NULL;
}

bool limits_holds(const struct limits *limits, const struct handle *handle) {
    const struct handle *each = limits->held;
    while (each != NULL && each != handle) {
        each = each->next_direct;
    }
    return each != NULL;
}

/* Lifted limits would start all direct calls that libcurl lets wait. */
static bool may_lift(const struct limits *limits) {
    if (!any(limits) || limits->hops == 0) {
        return false;
    }
    for (const struct handle *each = limits->direct; each != NULL; each = each->next_direct) {
        if (!has_room(limits, each, 0)) {
            return false;
        }
    }
    return true;
}

bool limits_apply(struct limits *limits) {
    bool began = false;
    struct handle **place = &limits->held;
    while (*place != NULL) {
        struct handle *handle = *place;
        if (limits->hops > 0 && !has_room(limits, handle, 1)) {
            place = &handle->next_direct;
            continue;
        }
        *place = handle->next_direct;
        limits->held_count--;
        run(limits, handle);
        libcurl.multi_add_handle(limits->multi, handle->curl);
        began = true;
    }
    if (began) {
        find_end(limits);
    }
    bool lift = limits->lifted ? limits->hops > 0 : may_lift(limits);
    if (lift != limits->lifted) {
        limits->lifted = lift;
        set(limits);
    }
    return began;
}
