/* The limits of a multi handle (CURLMOPT_MAX_HOST_CONNECTIONS, CURLMOPT_MAX_TOTAL_CONNECTIONS) apply to connections to origins, not to the
 * broker.
 *
 * Promises
 * - Calls at the broker are not held back here: the broker enforces their limits, which each call carries.
 * - Calls that go directly have no more connections than without the broker. While libcurl's own limits are lifted for calls at the
 *   broker, direct calls beyond the limits wait here, outside libcurl.
 */
#ifndef HEARTH_EXT_CURL_MULTI_LIMITS_H
#define HEARTH_EXT_CURL_MULTI_LIMITS_H

#include "ext/curl/handle.h"

struct limits {
    CURLM *multi;
    unsigned long long id; /* no other multi handle of this process owns it */
    long host, total;      /* 0: none */
    size_t hops;           /* calls at the broker */
    bool lifted;
    struct handle *direct;           /* under way, without the broker */
    struct handle *held, **held_end; /* the same, once there is room */
    size_t held_count;
};

void limits_init(struct limits *limits, CURLM *multi);
/* Stores a limit that libcurl's curl_multi_setopt() has accepted. */
void limits_keep(struct limits *limits, CURLMoption option, long number);

/* Appends the keys of Hearth-Control with these limits. Adds nothing if there is no limit. */
void limits_write(const struct limits *limits, struct text *control);

/* Called when a call goes directly and libcurl owns it. The call may be removed and held back. */
void limits_direct(struct limits *limits, struct handle *handle);
/* The call has ended or was removed: it does not count any more. */
void limits_forget(struct limits *limits, struct handle *handle);
/* Returns whether a call is held. */
bool limits_holds(const struct limits *limits, const struct handle *handle);

/* Called before libcurl continues: starts held calls that may begin, and sets libcurl's limits. True: some began. */
bool limits_apply(struct limits *limits);

#endif
