/* Content codings that libcurl undoes for the application, by the zlib that libcurl has brought along. */
#ifndef HEARTH_EXT_CURL_INFLATE_H
#define HEARTH_EXT_CURL_INFLATE_H

#include <stdbool.h>
#include <stddef.h>

struct inflater;

/* Returns whether each coding of a list (`gzip, deflate`) is supported here. */
bool inflater_knows(const char *codings);

/* Creates decoders for the values of Content-Encoding, in the order in which they were applied.
 * NULL with `*known`: nothing is to be decoded. NULL without: the codings are not supported. */
struct inflater *inflater_begin(const char *codings, bool *known);
/* Hands what comes of `bytes` to `take` in pieces that callbacks are used to. `*taken`: it took all. False: the bytes are broken. */
bool inflater_run(struct inflater *inflater, const char *bytes, size_t len,
    bool (*take)(void *arg, char *bytes, size_t len), void *arg, bool *taken);
/* NULL is fine. */
void inflater_end(struct inflater *inflater);

#endif
