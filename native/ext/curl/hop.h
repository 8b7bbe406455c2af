/* One call on its way: to the broker, from there directly when it declines, and on to where a redirect leads.
 *
 * Promises
 * - While a call is under way, libcurl holds options of ours; before and after, exactly those that the application set.
 * - The application's callbacks see one answer, as if there were no broker: never a declined one, never a field of the hop.
 * - A call is made directly only when nothing of it has gone to the origin.
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
/* The call is given up: puts the options back. */
void hop_abandon(struct handle *handle);
/* Whether an option is ours for the time being: what is set now counts from the next run on. */
bool hop_holds(const struct handle *handle, CURLoption option);
/* The handle has left its multi handle: CURLOPT_NOSIGNAL is the application's again. It is 1 from a call to the broker on, because libcurl
 * otherwise ignores SIGPIPE with three system calls each time it looks at a handle, finished ones included. A socket without TLS is
 * written with MSG_NOSIGNAL, and no name is looked up. */
void hop_restore_signals(struct handle *handle);
/* Gives a handle that libcurl has duplicated from `handle` the application's options. */
void hop_restore_copy(const struct handle *handle, CURL *copy);

#endif
