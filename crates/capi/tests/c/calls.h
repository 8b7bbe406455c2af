/* Helpers of the HTTP tests: the server's ports, and requests in one line. For a program with one
 * file. */
#ifndef CALLS_H
#define CALLS_H

#include <hearth.h>
#include <unistd.h>

#include "program.h"

/* Returns a URL at one of the server's ports, in one of eight buffers. */
static inline const char *at(const char *port, const char *path) {
    static char urls[8][600];
    static int next;
    char *url = urls[next++ % 8];
    int secure = strcmp(port, "https") == 0 || strcmp(port, "strict") == 0;
    snprintf(url, 600, "http%s://127.0.0.1:%s%s", secure ? "s" : "", argument(port), path);
    return url;
}

static inline hearth_request *request(const char *method, const char *url, const char *options) {
    hearth_request *made = NULL;
    CHECK_EQ(hearth_request_new(engine, &made), HEARTH_OK);
    CHECK_EQ(hearth_request_set_target(made, method, HEARTH_TEXT, url, HEARTH_TEXT), HEARTH_OK);
    if (options) {
        CHECK_EQ(hearth_request_set_options(made, options, HEARTH_TEXT), HEARTH_OK);
    }
    return made;
}

static inline hearth_response *perform(hearth_request *made) {
    hearth_response *response = NULL;
    CHECK_EQ(hearth_request_perform(made, &response), HEARTH_OK);
    hearth_request_free(made);
    return response;
}

static inline hearth_response *get(const char *path, const char *options) {
    return perform(request("GET", at("http", path), options));
}

/* Returns a path whose requests the server counts, for this run only. */
static inline const char *once(const char *path, const char *query) {
    static char paths[4][200];
    static int next;
    char *made = paths[next++ % 4];
    snprintf(made, 200, "%s%d%s", path, (int)getpid(), query);
    return made;
}

static inline int contains(hearth_bytes text, const char *part) {
    size_t length = strlen(part);
    for (size_t from = 0; from + length <= text.size; from++) {
        if (strncasecmp(text.data + from, part, length) == 0) {
            return 1;
        }
    }
    return 0;
}

#endif
