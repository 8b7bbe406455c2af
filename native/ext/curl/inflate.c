/* See inflate.h. As lib/content_encoding.c of libcurl: gzip and zlib by their heads; deflate without a head where the first bytes are none. */
#include "ext/curl/inflate.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "ext/curl/libcurl.h"

/* From zlib.h: z_stream and its constants. The layout is fixed (zlib checks size and major
 * version), so the header is not needed to build. */
struct stream {
    const unsigned char *next_in;
    unsigned avail_in;
    unsigned long total_in;
    unsigned char *next_out;
    unsigned avail_out;
    unsigned long total_out;
    const char *message;
    void *state;
    void *(*allocate)(void *, unsigned, unsigned);
    void (*release)(void *, void *);
    void *opaque;
    int data_type;
    unsigned long check, reserved;
};
enum {
    OK = 0,
    STREAM_END = 1,
    BUFFER_ERROR = -5,
    NO_FLUSH = 0,
    BY_HEAD = 15 + 32,
    ZLIB = 15,
    RAW = -15
};

struct inflater {
    struct stream stream;
    bool zipped; /* gzip, else deflate */
    bool begun, ended;
    struct inflater *next; /* owned; undoes what had been applied before; NULL: nothing had */
    char out[CURL_MAX_WRITE_SIZE];
};

static struct {
    int (*init)(struct stream *, int, const char *, int);
    int (*run)(struct stream *, int);
    int (*reset)(struct stream *, int);
    int (*end)(struct stream *);
    bool tried;
} zlib;

static void look_up(const char *name, void *function) {
    void *found = libcurl_neighbour(name);
    memcpy(function, &found, sizeof found);
}

static bool has_zlib(void) {
    if (!zlib.tried) {
        zlib.tried = true;
        look_up("inflateInit2_", &zlib.init);
        look_up("inflate", &zlib.run);
        look_up("inflateReset2", &zlib.reset);
        look_up("inflateEnd", &zlib.end);
    }
    return zlib.init != NULL && zlib.run != NULL && zlib.reset != NULL && zlib.end != NULL;
}

static bool is(const char *word, size_t len, const char *name) {
    return strlen(name) == len && strncasecmp(word, name, len) == 0;
}

bool inflater_knows(const char *codings) {
    if (*codings == '\0' || !has_zlib()) {
        return false; /* empty: all codings that libcurl supports */
    }
    for (const char *at = codings; *at != '\0';) {
        at += strspn(at, " ,");
        size_t len = strcspn(at, " ,");
        if (len > 0 && !is(at, len, "gzip") && !is(at, len, "deflate")) {
            return false;
        }
        at += len;
    }
    return true;
}

/* Adds a decoder in front of those for codings applied earlier. False: the coding is not
 * supported. */
static bool put_in_front(struct inflater **all, const char *coding, size_t len) {
    bool zipped = is(coding, len, "gzip") || is(coding, len, "x-gzip");
    if (is(coding, len, "identity") || is(coding, len, "none")) {
        return true;
    }
    if ((!zipped && !is(coding, len, "deflate")) || !has_zlib()) {
        return false;
    }
    struct inflater *inflater = calloc(1, sizeof *inflater);
    if (inflater == NULL) {
        abort();
    }
    inflater->zipped = zipped;
    if (zlib.init(&inflater->stream, zipped ? BY_HEAD : ZLIB, "1", (int)sizeof(struct stream)) !=
        OK) {
        free(inflater);
        return false;
    }
    inflater->next = *all;
    *all = inflater;
    return true;
}

struct inflater *inflater_begin(const char *codings, bool *known) {
    enum { MOST = 5 }; /* MAX_ENCODE_STACK */
    struct inflater *all = NULL;
    int count = 0;
    *known = true;
    for (const char *at = codings; *known && *at != '\0';) {
        at += strspn(at, ", \t");
        size_t len = strcspn(at, ",");
        size_t end = len;
        while (end > 0 && strchr(" \t", at[end - 1]) != NULL) {
            end--;
        }
        if (end > 0) {
            *known = ++count <= MOST && put_in_front(&all, at, end);
        }
        at += len;
    }
    if (!*known) {
        inflater_end(all);
        return NULL;
    }
    return all;
}

typedef bool take_piece(void *arg, char *bytes, size_t len);

static bool run(
    struct inflater *x, const char *bytes, size_t len, take_piece *take, void *arg, bool *taken) {
    *taken = true;
    if (x->ended) {
        return true; /* bytes after the end are ignored */
    }
    x->stream.next_in = (const unsigned char *)bytes;
    x->stream.avail_in = (unsigned)len;
    for (;;) {
        x->stream.next_out = (unsigned char *)x->out;
        x->stream.avail_out = sizeof x->out;
        int status = zlib.run(&x->stream, NO_FLUSH);
        if (status != OK && status != STREAM_END && status != BUFFER_ERROR) {
            if (x->zipped || x->begun) {
                return false;
            }
            /* some servers leave the head out */
            x->begun = true;
            x->stream.next_in = (const unsigned char *)bytes;
            x->stream.avail_in = (unsigned)len;
            if (zlib.reset(&x->stream, RAW) != OK) {
                return false;
            }
            continue;
        }
        size_t made = sizeof x->out - x->stream.avail_out;
        x->begun = true;
        if (made > 0 && !take(arg, x->out, made)) {
            *taken = false;
            return true;
        }
        x->ended = status == STREAM_END;
        if (x->ended || (x->stream.avail_in == 0 && made < sizeof x->out) || made == 0) {
            return true;
        }
    }
}

/* Receives the output of one decoder. */
struct onward {
    struct inflater *next;
    take_piece *take;
    void *arg;
    bool intact, taken;
};

static bool to_next(void *arg, char *bytes, size_t len) {
    struct onward *onward = arg;
    onward->intact =
        inflater_run(onward->next, bytes, len, onward->take, onward->arg, &onward->taken);
    return onward->intact && onward->taken;
}

bool inflater_run(
    struct inflater *x, const char *bytes, size_t len, take_piece *take, void *arg, bool *taken) {
    if (x->next == NULL) {
        return run(x, bytes, len, take, arg, taken);
    }
    struct onward onward = {x->next, take, arg, true, true};
    return run(x, bytes, len, to_next, &onward, taken) && onward.intact;
}

void inflater_end(struct inflater *inflater) {
    while (inflater != NULL) {
        struct inflater *next = inflater->next;
        zlib.end(&inflater->stream);
        free(inflater);
        inflater = next;
    }
}
