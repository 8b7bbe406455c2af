/* One CURL handle of ext-curl: its options, and its current call.
 *
 * Promises
 * - Options are kept as libcurl keeps them: strings copied, everything else borrowed from ext-curl, which must keep it for libcurl.
 * - Lives exactly as long as the handle (curl_easy_init to curl_easy_cleanup), in the C heap like the handle.
 */
#ifndef HEARTH_EXT_CURL_HANDLE_H
#define HEARTH_EXT_CURL_HANDLE_H

#include "ext/curl/libcurl.h"

#include <stddef.h>

/* How an option bears on the way a call can take. */
enum rule {
    RULE_INDIFFERENT, /* means the same on either way: not kept */
    RULE_NUMBER,      /* kept, looked at by route.c */
    RULE_TEXT,
    RULE_POINTER,
    RULE_HEAD_TEXT, /* text that becomes part of the request's head: refused with a line break in it */
    RULE_DIRECT,    /* anything but zero: the call goes directly */
    RULE_DIRECT_UNLESS_ONE,
};

enum rule rule_of(CURLoption option);
/* Returns whether fast.c does, or may ignore, what this option with its value asks for. */
bool fast_knows(CURLoption option, long number);

struct option {
    CURLoption id;
    bool forbids; /* while it is set, calls go directly */
    bool slow;    /* while it is set, calls go through libcurl: fast.c does not do it */
    long number;
    void *pointer;
    char *text; /* owned */
};

enum method { METHOD_GET, METHOD_HEAD, METHOD_POST, METHOD_MIME, METHOD_PUT };

/* The stage of a call. */
enum way {
    WAY_NONE,   /* no call under way */
    WAY_BROKER, /* to the broker, by libcurl */
    WAY_FAST,   /* to the broker, without libcurl: fast.c */
    WAY_DIRECT, /* directly, after the broker had been tried */
};

struct text {
    char *bytes; /* owned */
    size_t len, room;
};

/* The broker's statement about an answer (docs/internals/egress.md). */
struct verdict {
    enum { VERDICT_ANSWER, VERDICT_DECLINED, VERDICT_FAILED } kind;
    char reason[16];
    int error;
    char message[CURL_ERROR_SIZE];
    /* Hearth-Timing; microseconds */
    bool timed, reused;
    long resolved, connected, secured;
    char protocol[4];
    char address[64];
    long port;
};

/* One request of a call, and its answer: redirects make several. */
struct step {
    struct text head; /* lines of the answer that the application has not seen yet */
    size_t delivered; /* the part of them that it has seen, if it paused */
    bool head_done;   /* the final head is complete; later fields are trailers */
    bool follows;     /* a redirect that will be followed: its body is discarded */
    int status;
    char *location;             /* owned; NULL: none */
    struct curl_slist *cookies; /* for `https` only, as they came. Owned */
    struct verdict verdict;
    long header_size; /* bytes of the head as the application has seen it */
};

/* What differs from the options that were set, from a redirect on. */
struct onward {
    char *url;       /* owned; NULL: no redirect yet */
    bool get;        /* a POST or PUT has become a GET */
    bool anonymous;  /* another origin: no credentials */
    bool other_host; /* nor a Host field of the caller's */
    char *referer;   /* owned; NULL: as set */
};

/* CURLINFO of a step that was made without libcurl. */
struct fast {
    bool made; /* the last step of the last call */
    char *url; /* owned */
    int status;
    char *content_type; /* owned; NULL: none */
    char *coding; /* owned; all of them, in their order; NULL: none, or left to the application */
    struct inflater *inflater;
    long retry_after;
    unsigned long sign_in; /* CURLAUTH_* that the origin offers */
    curl_off_t length;     /* declared length of the body, -1: unknown */
    curl_off_t sent, received, request_size;
    curl_off_t prepared, first_byte, total; /* microseconds */
    int http_version;
    const char *method;
    size_t offered, taken; /* the last bytes that a callback got, and its result */
};

/* Sums over the steps before this one, as libcurl's CURLINFO would have them. */
struct sums {
    long redirects, connects, header_size, request_size;
    curl_off_t total, resolved, connected, secured, prepared, first_byte,
        redirect; /* microseconds */
};

struct limits;

struct handle {
    CURL *curl;
    struct handle *next;
    struct option *options;
    size_t option_count, option_room;
    enum method method;
    bool no_body;       /* CURLOPT_NOBODY */
    bool streamed;      /* the body comes from the read callback */
    bool cookie_engine; /* outlives curl_easy_reset() */
    bool cookie_files;  /* cookies are read from a file or a share, or written there */

    /* The body given by CURLOPT_COPYPOSTFIELDS, owned. NULL: it is stored in libcurl only, or too large to hold twice. */
    char *fields;
    size_t fields_len;
    long fields_size; /* CURLOPT_POSTFIELDSIZE; -1: up to the NUL */

    enum way way;
    bool alone;      /* the call is curl_easy_perform()'s */
    bool quiet;      /* libcurl's CURLOPT_NOSIGNAL is ours: hop_restore_signals() */
    bool by_libcurl; /* libcurl has made a transfer with it, or may have */
    bool lasting;    /* an option was set that curl_easy_reset() leaves, or may leave */
    struct text control, request; /* of a step without libcurl */
    struct fast fast;
    CURLM *multi;               /* the call is made by it */
    struct handle *next_added;  /* another one that waits for its first curl_multi_perform() */
    struct limits *limits;      /* of the multi handle that makes the call; NULL: none. Borrowed */
    struct handle *next_direct; /* the next handle of the same multi handle with a direct call */
    bool at_broker;             /* counted in `limits` as a call at the broker */
    char *origin;               /* of the step: `https://host:port`. Owned */
    bool https;
    bool cut_port;              /* `:443` was left out of the URL for libcurl */
    struct curl_slist *headers; /* of the step. Owned */
    long own_bytes;             /* of the request's head: ours */
    struct step step;
    struct onward onward;
    struct sums sums;
    enum method step_method;
    curl_off_t began; /* microseconds, monotonic */

    /* The data that the application's read callback has given, in case they are needed again. */
    struct text given;
    size_t given_again;
    curl_off_t given_bytes;
    bool given_lost, given_end;

    /* The last call. */
    bool by_broker;      /* its last step was made by the broker: CURLINFO is ours to mend */
    char *effective_url; /* owned */
    char *redirect_url;  /* owned */
};

/* NULL for a handle that is not ext-curl's. */
struct handle *handle_of(CURL *curl);
/* A multi handle goes away: its limits concern no handle any more. */
void handles_forget_limits(const struct limits *limits);
struct handle *handle_new(CURL *curl);
/* A copy of the options, for a handle that libcurl has duplicated. */
struct handle *handle_copy(const struct handle *from, CURL *curl);
void handle_free(struct handle *handle);
/* The effect of curl_easy_reset(). */
void handle_reset(struct handle *handle);

/* Handles of libcurl that are as new, for the next curl_easy_init(): libcurl takes longer to make one than the call takes here.
 * False: this one cannot be kept. NULL: there is none. */
bool handle_spare(const struct handle *handle);
CURL *handle_take_spare(void);
void handles_drop_spare(void);

/* An option as given to curl_easy_setopt(), once libcurl has taken it. */
void handle_keep(struct handle *handle, CURLoption option, long number, void *pointer);

long handle_number(const struct handle *handle, CURLoption option, long otherwise);
const char *handle_text(const struct handle *handle, CURLoption option);
void *handle_pointer(const struct handle *handle, CURLoption option);
/* Returns whether an option is set that only the direct way supports. */
bool handle_forbids(const struct handle *handle);

/* Returns whether an option is set that fast.c does not support. */
bool handle_is_slow(const struct handle *handle);
/* Clears the CURLINFO values of the last step that was made without libcurl. */
void handle_clear_fast(struct handle *handle);

/* Shares of ext-curl that share cookies. */
void share_keep(CURLSH *share, bool cookies);
bool share_has_cookies(const CURLSH *share);

void text_append(struct text *text, const char *bytes, size_t len);
void text_clear(struct text *text);
void text_free(struct text *text);

#endif
