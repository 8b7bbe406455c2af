/* Decides whether a call may go through the broker, and which options the broker must know.
 * docs/internals/egress.md describes the options. */
#ifndef HEARTH_EXT_CURL_ROUTE_H
#define HEARTH_EXT_CURL_ROUTE_H

#include "ext/curl/handle.h"

/* An http or https URL, taken apart. Borrowed from it. */
struct target {
    bool https;
    bool has_user;
    const char *authority, *authority_end; /* with user and port */
    const char *host, *host_end;           /* with brackets */
    const char *port, *port_end;           /* digits; empty: none given */
};

/* False for a URL that libcurl might read in another way than we do. */
bool target_read(const char *url, struct target *target);
/* The port that is connected to. */
long target_port(const struct target *target);

/* Returns whether `wanted` is in a list as CURLOPT_PROTOCOLS_STR accepts it. */
bool route_names_protocol(const char *names, const char *wanted);

/* Returns whether the broker may make the step to `url`. Fills: https. */
bool route_allows(struct handle *handle, const char *url, struct target *target);
/* Appends the broker's options, each after `, `. False: one of them cannot be expressed. */
bool route_control(const struct handle *handle, bool https, struct text *control);
/* Fills what the hop needs: origin, cut_port, headers, own_bytes. The URL for libcurl, owned by the caller, or NULL: directly. */
char *route_to_broker(struct handle *handle, const char *url, const struct target *target);

/* Returns whether a line of CURLOPT_HTTPHEADER is this field; `Name;` is a field without value. */
bool route_is_field(const char *line, const char *name);
/* A field that was meant for the origin of the first call, and not for the one that a redirect leads to. */
bool route_withholds(const struct handle *handle, const char *line);

/* The fields for a step that a redirect leads to and that is made directly: headers. */
void route_directly(struct handle *handle, const char *url);

#endif
