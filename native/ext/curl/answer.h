/* libcurl's callbacks while a call is at the broker. They remove the hop's own lines from the
 * answer and pass the rest to the application. */
#ifndef HEARTH_EXT_CURL_ANSWER_H
#define HEARTH_EXT_CURL_ANSWER_H

#include "ext/curl/handle.h"

size_t answer_header(char *line, size_t size, size_t count, void *handle);
size_t answer_body(char *bytes, size_t size, size_t count, void *handle);
/* Reads the request's body. Data from the application is kept in case it must be sent again. */
size_t answer_read(char *buffer, size_t size, size_t count, void *handle);
size_t answer_read_again(char *buffer, size_t size, size_t count, void *handle);
int answer_debug(CURL *curl, curl_infotype type, char *bytes, size_t len, void *handle);

/* Delivers a head that broke off. False: the application rejected it. */
bool answer_flush(struct handle *handle);

#endif
