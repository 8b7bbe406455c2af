/* One call: to the broker, then directly if the broker declines, and then to the target of a redirect.
 *
 * Promises
 * - During a call libcurl holds options of ours; before and after it, exactly the application's.
 * - The application's callbacks see one answer, as without a broker: never a declined one, never a field of the hop.
 * - A call is made directly only if the origin has received no byte of it.
 */
#ifndef HEARTH_EXT_CURL_HOP_H
#define HEARTH_EXT_CURL_HOP_H

#include "ext/curl/handle.h"

/* Before curl_easy_perform() (`alone`) or curl_multi_add_handle(): prepares the handle for the broker. False: it is left for the direct
 * way. */
bool hop_begin(struct handle *handle, bool alone);
/* What curl_easy_perform() does for a handle that is prepared, or was not. */
CURLcode hop_perform(struct handle *handle);
/* When libcurl is done with `result`. True: it has to run once more, the handle is prepared. False: the call is over, `result` is what
 * came of it. */
bool hop_end(struct handle *handle, CURLcode *result);
/* Cancels the call and restores the options. */
void hop_abandon(struct handle *handle);
/* Returns whether Hearth currently overrides an option. A new value then applies from the next run on. */
bool hop_holds(const struct handle *handle, CURLoption option);
/* The handle has left its multi handle: CURLOPT_NOSIGNAL is the application's again. It is 1 from a call to the broker on, because libcurl
 * otherwise ignores SIGPIPE with three system calls each time it looks at a handle, finished ones included. A socket without TLS is
 * written with MSG_NOSIGNAL, and no name is looked up. */
void hop_restore_signals(struct handle *handle);
/* Gives a handle that libcurl has duplicated from `handle` the application's options. */
void hop_restore_copy(const struct handle *handle, CURL *copy);

#endif
