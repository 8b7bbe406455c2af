/* See handle.h. */
#include "ext/curl/handle.h"

#include "ext/curl/inflate.h"

#include <limits.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

enum { BUCKETS = 256, SHARES = 16, SPARE = 4 };
static struct handle *buckets[BUCKETS];
static CURL *spare[SPARE];
static size_t spare_count;
/* At most this many share objects are told apart; the others count as sharing cookies. */
static CURLSH *cookie_shares[SHARES];
static bool shares_overflow;

static void *expect_memory(void *memory) {
    if (memory == NULL) {
        abort();
    }
    return memory;
}

void text_append(struct text *text, const char *bytes, size_t len) {
    if (text->room - text->len < len) {
        size_t room = text->room * 2 + len + 256;
        text->bytes = expect_memory(realloc(text->bytes, room));
        text->room = room;
    }
    memcpy(text->bytes + text->len, bytes, len);
    text->len += len;
}

void text_clear(struct text *text) {
    text->len = 0;
}

void text_free(struct text *text) {
    free(text->bytes);
    *text = (struct text){NULL, 0, 0};
}

static struct handle **bucket_of(CURL *curl) {
    return &buckets[((uintptr_t)curl >> 6) % BUCKETS];
}

struct handle *handle_of(CURL *curl) {
    struct handle *handle = *bucket_of(curl);
    while (handle != NULL && handle->curl != curl) {
        handle = handle->next;
    }
    return handle;
}

void handles_forget_limits(const struct limits *limits) {
    for (size_t i = 0; i < BUCKETS; i++) {
        for (struct handle *handle = buckets[i]; handle != NULL; handle = handle->next) {
            if (handle->limits == limits) {
                handle->limits = NULL;
                handle->next_direct = NULL;
                handle->at_broker = false;
            }
        }
    }
}

struct handle *handle_new(CURL *curl) {
    struct handle *handle = expect_memory(calloc(1, sizeof *handle));
    struct handle **bucket = bucket_of(curl);
    handle->curl = curl;
    handle->fields_size = -1;
    handle->next = *bucket;
    *bucket = handle;
    return handle;
}

bool handle_spare(const struct handle *handle) {
    if (handle->by_libcurl || handle->lasting || spare_count == SPARE) {
        return false;
    }
    libcurl.easy_reset(handle->curl);
    spare[spare_count++] = handle->curl;
    return true;
}

CURL *handle_take_spare(void) {
    return spare_count > 0 ? spare[--spare_count] : NULL;
}

void handles_drop_spare(void) {
    while (spare_count > 0) {
        libcurl.easy_cleanup(spare[--spare_count]);
    }
}

static void drop_options(struct handle *handle) {
    for (size_t i = 0; i < handle->option_count; i++) {
        free(handle->options[i].text);
    }
    handle->option_count = 0;
}

static void drop_last_call(struct handle *handle) {
    free(handle->effective_url);
    free(handle->redirect_url);
    handle->effective_url = handle->redirect_url = NULL;
    handle->by_broker = false;
    handle->sums = (struct sums){0};
    handle_clear_fast(handle);
}

void handle_clear_fast(struct handle *handle) {
    free(handle->fast.url);
    free(handle->fast.content_type);
    free(handle->fast.coding);
    inflater_end(handle->fast.inflater);
    handle->fast = (struct fast){0};
}

static void drop_fields(struct handle *handle) {
    free(handle->fields);
    handle->fields = NULL;
}

/* The last CURLOPT_COPYPOSTFIELDS, unless it is too large. */
static void keep_fields(struct handle *handle, const char *bytes) {
    enum { MOST = 1 << 20 };
    drop_fields(handle);
    if (bytes == NULL) {
        return;
    }
    size_t len = handle->fields_size < 0 ? strlen(bytes) : (size_t)handle->fields_size;
    if (len <= MOST) {
        handle->fields = expect_memory(malloc(len + 1));
        memcpy(handle->fields, bytes, len);
        handle->fields_len = len;
    }
}

struct handle *handle_copy(const struct handle *from, CURL *curl) {
    struct handle *handle = handle_new(curl);
    handle->lasting = true;
    handle->options = expect_memory(calloc(from->option_count + 1, sizeof *handle->options));
    handle->option_room = from->option_count + 1;
    handle->option_count = from->option_count;
    for (size_t i = 0; i < from->option_count; i++) {
        handle->options[i] = from->options[i];
        if (from->options[i].text != NULL) {
            handle->options[i].text = expect_memory(strdup(from->options[i].text));
        }
    }
    handle->method = from->method;
    handle->no_body = from->no_body;
    handle->cookie_engine = from->cookie_engine;
    handle->cookie_files = from->cookie_files;
    handle->fields_size = from->fields_size;
    if (from->fields != NULL) {
        handle->fields = expect_memory(malloc(from->fields_len + 1));
        memcpy(handle->fields, from->fields, from->fields_len);
        handle->fields_len = from->fields_len;
    }
    return handle;
}

void handle_free(struct handle *handle) {
    struct handle **place = bucket_of(handle->curl);
    while (*place != handle) {
        place = &(*place)->next;
    }
    *place = handle->next;
    drop_options(handle);
    drop_last_call(handle);
    free(handle->options);
    libcurl.slist_free_all(handle->headers);
    free(handle->origin);
    text_free(&handle->step.head);
    free(handle->step.location);
    libcurl.slist_free_all(handle->step.cookies);
    free(handle->onward.url);
    free(handle->onward.referer);
    text_free(&handle->given);
    text_free(&handle->control);
    text_free(&handle->request);
    drop_fields(handle);
    free(handle);
}

void handle_reset(struct handle *handle) {
    drop_options(handle);
    drop_last_call(handle);
    handle->method = METHOD_GET;
    handle->no_body = false;
    handle->fields_size = -1;
    drop_fields(handle);
}

static struct option *find(const struct handle *handle, CURLoption option) {
    for (size_t i = 0; i < handle->option_count; i++) {
        if (handle->options[i].id == option) {
            return &handle->options[i];
        }
    }
    return NULL;
}

static void forget(struct handle *handle, CURLoption option) {
    struct option *kept = find(handle, option);
    if (kept != NULL) {
        free(kept->text);
        *kept = handle->options[--handle->option_count];
    }
}

static struct option *keep(struct handle *handle, CURLoption option) {
    struct option *kept = find(handle, option);
    if (kept != NULL) {
        free(kept->text);
    } else {
        if (handle->option_count == handle->option_room) {
            handle->option_room = handle->option_room * 2 + 16;
            handle->options = expect_memory(
                realloc(handle->options, handle->option_room * sizeof *handle->options));
        }
        kept = &handle->options[handle->option_count++];
    }
    *kept = (struct option){.id = option};
    return kept;
}

/* Like libcurl's lib/setopt.c: the last value counts. */
static void keep_method(struct handle *handle, CURLoption option, long number, void *pointer) {
    switch (option) {
    case CURLOPT_HTTPGET:
        if (number != 0) {
            handle->method = METHOD_GET;
            handle->no_body = false;
        }
        break;
    case CURLOPT_POST:
        handle->method = number != 0 ? METHOD_POST : METHOD_GET;
        handle->no_body = handle->no_body && number == 0;
        break;
    case CURLOPT_POSTFIELDS:
    case CURLOPT_COPYPOSTFIELDS:
        handle->method = METHOD_POST;
        keep_fields(handle, option == CURLOPT_COPYPOSTFIELDS ? pointer : NULL);
        break;
    case CURLOPT_POSTFIELDSIZE:
    case CURLOPT_POSTFIELDSIZE_LARGE:
        handle->fields_size = option == CURLOPT_POSTFIELDSIZE ? number : -1;
        drop_fields(handle); /* it is another one now */
        break;
    case CURLOPT_MIMEPOST:
    case CURLOPT_HTTPPOST:
        handle->method = METHOD_MIME;
        handle->no_body = false;
        break;
    case CURLOPT_UPLOAD:
    case CURLOPT_PUT:
        handle->method = number != 0 ? METHOD_PUT : METHOD_GET;
        handle->no_body = handle->no_body && number == 0;
        break;
    case CURLOPT_NOBODY:
        handle->no_body = number != 0;
        if (number != 0) {
            handle->method = METHOD_HEAD;
        } else if (handle->method == METHOD_HEAD) {
            handle->method = METHOD_GET;
        }
        break;
    case CURLOPT_COOKIEFILE:
        handle->cookie_engine |= pointer != NULL;
        handle->cookie_files |= pointer != NULL && *(const char *)pointer != '\0';
        break;
    case CURLOPT_COOKIEJAR:
    case CURLOPT_COOKIELIST:
        handle->cookie_engine |= pointer != NULL;
        handle->cookie_files |= pointer != NULL;
        break;
    default:
        break;
    }
}

/* Returns whether curl_easy_reset() leaves the option, or it is not known to clear it. */
static bool lasts(CURLoption option) {
    return option == CURLOPT_SHARE || option == CURLOPT_COOKIESESSION ||
           rule_of(option) == RULE_DIRECT || rule_of(option) == RULE_DIRECT_UNLESS_ONE;
}

void handle_keep(struct handle *handle, CURLoption option, long number, void *pointer) {
    if (option == CURLOPT_TIMEOUT || option == CURLOPT_CONNECTTIMEOUT) {
        /* one setting under two names */
        option = option == CURLOPT_TIMEOUT ? CURLOPT_TIMEOUT_MS : CURLOPT_CONNECTTIMEOUT_MS;
        number = number > LONG_MAX / 1000 ? LONG_MAX : number * 1000;
    }
    keep_method(handle, option, number, pointer);
    handle->lasting |= handle->cookie_engine || lasts(option);
    const char *text = pointer;
    switch (rule_of(option)) {
    case RULE_INDIFFERENT:
        if (fast_knows(option, number)) {
            forget(handle, option);
        } else {
            keep(handle, option)->slow = true;
        }
        break;
    case RULE_NUMBER:
        keep(handle, option)->number = number;
        find(handle, option)->slow = !fast_knows(option, number);
        break;
    case RULE_POINTER:
        keep(handle, option)->pointer = pointer;
        find(handle, option)->slow = pointer != NULL && !fast_knows(option, 0);
        break;
    case RULE_TEXT:
    case RULE_HEAD_TEXT:
        if (text == NULL) {
            forget(handle, option);
        } else {
            struct option *kept = keep(handle, option);
            kept->text = expect_memory(strdup(text));
            kept->forbids =
                rule_of(option) == RULE_HEAD_TEXT && text[strcspn(text, "\r\n")] != '\0';
            kept->slow = !fast_knows(option, 0);
        }
        break;
    case RULE_DIRECT:
    case RULE_DIRECT_UNLESS_ONE:
        if (rule_of(option) == RULE_DIRECT ? number == 0 && pointer == NULL : number == 1) {
            forget(handle, option);
        } else {
            keep(handle, option)->forbids = true;
        }
        break;
    }
}

long handle_number(const struct handle *handle, CURLoption option, long otherwise) {
    const struct option *kept = find(handle, option);
    return kept != NULL ? kept->number : otherwise;
}

const char *handle_text(const struct handle *handle, CURLoption option) {
    const struct option *kept = find(handle, option);
    return kept != NULL ? kept->text : NULL;
}

void *handle_pointer(const struct handle *handle, CURLoption option) {
    const struct option *kept = find(handle, option);
    return kept != NULL ? kept->pointer : NULL;
}

bool handle_forbids(const struct handle *handle) {
    for (size_t i = 0; i < handle->option_count; i++) {
        if (handle->options[i].forbids) {
            return true;
        }
    }
    return false;
}

bool handle_is_slow(const struct handle *handle) {
    for (size_t i = 0; i < handle->option_count; i++) {
        if (handle->options[i].slow) {
            return true;
        }
    }
    return false;
}

void share_keep(CURLSH *share, bool cookies) {
    CURLSH **vacant = NULL;
    for (size_t i = 0; i < SHARES; i++) {
        if (cookie_shares[i] == share) {
            cookie_shares[i] = cookies ? share : NULL;
            return;
        }
        if (cookie_shares[i] == NULL && vacant == NULL) {
            vacant = &cookie_shares[i];
        }
    }
    if (cookies && vacant != NULL) {
        *vacant = share;
    } else if (cookies) {
        shares_overflow = true;
    }
}

bool share_has_cookies(const CURLSH *share) {
    for (size_t i = 0; i < SHARES; i++) {
        if (cookie_shares[i] == share) {
            return true;
        }
    }
    return shares_overflow;
}
