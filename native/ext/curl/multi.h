/* What ext-curl calls instead of libcurl's functions, for handles that run side by side. */
#ifndef HEARTH_EXT_CURL_MULTI_H
#define HEARTH_EXT_CURL_MULTI_H

#include "ext/curl/handle.h"

CURLMcode multi_add_handle(CURLM *multi, CURL *curl);
CURLMcode multi_remove_handle(CURLM *multi, CURL *curl);
CURLMcode multi_perform(CURLM *multi, int *running);
CURLMsg *multi_info_read(CURLM *multi, int *left);
CURLMcode multi_cleanup(CURLM *multi);
CURLMcode multi_setopt(CURLM *multi, CURLMoption option, ...);

/* The handle goes away. */
void multi_forget(struct handle *handle);

#endif
