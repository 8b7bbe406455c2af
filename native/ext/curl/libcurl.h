/* The functions of the libcurl that ext-curl has loaded, found at run time. Nothing here links to libcurl, so the worker does not
 * need it.
 *
 * Promises
 * - ext-curl's calls into libcurl go to libcurl_replacements. If anything is not as expected, nothing is changed.
 * - Other libraries' calls into libcurl are not changed.
 */
#ifndef HEARTH_EXT_CURL_LIBCURL_H
#define HEARTH_EXT_CURL_LIBCURL_H

#define CURL_DISABLE_TYPECHECK
#define CURL_DISABLE_DEPRECATION
#include <curl/curl.h>
#include <stdbool.h>

/* clang-format off */
/* Functions that ext-curl calls and that are replaced for it. */
#define LIBCURL_REPLACED(each) \
    each(easy_init) each(easy_setopt) each(easy_perform) each(easy_getinfo) each(easy_reset) each(easy_duphandle) \
    each(easy_cleanup) each(multi_add_handle) each(multi_remove_handle) each(multi_perform) each(multi_info_read) \
    each(multi_cleanup) each(multi_setopt) each(share_setopt) each(share_cleanup)

/* Functions that are only called. */
#define LIBCURL_CALLED(each) \
    each(version_info) each(slist_append) each(slist_free_all) each(url) each(url_set) each(url_get) each(url_cleanup) each(getdate) \
    each(free)
/* clang-format on */

#define LIBCURL_MEMBER(name) __typeof__(&curl_##name) name;
struct libcurl {
    LIBCURL_REPLACED(LIBCURL_MEMBER)
    LIBCURL_CALLED(LIBCURL_MEMBER)
};
#undef LIBCURL_MEMBER

/* libcurl's own functions. Static; valid once libcurl_take_over() has succeeded. */
extern struct libcurl libcurl;

/* Its version, as in CURL_VERSION_BITS. */
extern unsigned libcurl_version;

/* What ext-curl calls instead: the members named in LIBCURL_REPLACED. Static. */
extern const struct libcurl libcurl_replacements;

/* Makes the object file that contains `inside`, an address in ext-curl, call the replacements. NULL, or why not. Static: the result. */
const char *libcurl_take_over(const void *inside);
/* Undoes that. */
void libcurl_give_back(void);

/* A function of a library that libcurl may have brought along, or NULL. */
void *libcurl_neighbour(const char *name);

#endif
