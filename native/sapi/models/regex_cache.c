/* See regex_cache.h. The cache owns each entry by a pointer, and frees it once nothing uses it: pcre_get_compiled_regex_cache_ex() and
 * php_free_pcre_cache(), ext/pcre/php_pcre.c. Code that keeps an entry raises its counter, because the cache may be emptied at any time. */
#include "sapi/models/regex_cache.h"

#include <malloc.h>
#include <php.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#define PCRE2_CODE_UNIT_WIDTH 8
#include <ext/pcre/php_pcre.h>

enum {
    LARGEST = 512,    /* bytes that malloc may have given an entry */
    SCATTERED = 4096, /* allocations between other memory, before those that are side by side */
    HEADER = 2 * sizeof(size_t), /* at most this is between two allocations that are */
};

/* The offset of an entry's counter, a number of 32 bits. Returns false if it cannot be found. */
static bool find_counter(pcre_cache_entry *entry, size_t size, size_t *offset) {
    uint32_t before[LARGEST / sizeof(uint32_t)];
    uint32_t after[LARGEST / sizeof(uint32_t)];
    memcpy(before, entry, size);
    php_pcre_pce_incref(entry);
    memcpy(after, entry, size);
    php_pcre_pce_decref(entry);
    size_t found = 0;
    for (size_t i = 0; i < size / sizeof *after; i++) {
        if (after[i] != before[i]) {
            found += after[i] == before[i] + 1 ? 1 : 2;
            *offset = i * sizeof *after;
        }
    }
    return found == 1;
}

static bool is_used(const void *entry, size_t offset) {
    uint32_t counter;
    memcpy(&counter, (const char *)entry + offset, sizeof counter);
    return counter != 0;
}

/* Allocates `count` pieces of memory side by side: the last of blocks[]. Returns how many were allocated in all; 0 if there are none. */
static size_t allocate_side_by_side(char **blocks, size_t count, size_t size) {
    size_t run = 0;
    size_t all = 0;
    while (run < count && all < count + SCATTERED) {
        char *block = malloc(size);
        if (block == NULL) {
            break;
        }
        bool next = all > 0 && block > blocks[all - 1] && block <= blocks[all - 1] + size + HEADER;
        run = next ? run + 1 : 1;
        blocks[all++] = block;
    }
    size_t others = run == count ? all - count : all;
    for (size_t i = 0; i < others; i++) {
        free(blocks[i]);
    }
    return run == count ? all : 0;
}

/* An entry that can be moved, or NULL. All of them have one size. */
static pcre_cache_entry *movable(zval *value, size_t size, size_t offset) {
    pcre_cache_entry *entry = Z_PTR_P(value);
    return malloc_usable_size(entry) == size && !is_used(entry, offset) ? entry : NULL;
}

static void move_entries(HashTable *cache, char **to, size_t size, size_t offset) {
    zval *value;
    ZEND_HASH_FOREACH_VAL(cache, value) {
        pcre_cache_entry *entry = movable(value, size, offset);
        if (entry != NULL) {
            memcpy(*to, entry, size);
            Z_PTR_P(value) = *to++;
            free(entry);
        }
    }
    ZEND_HASH_FOREACH_END();
}

void regex_cache_gather(void) {
    HashTable *cache = &PCRE_G(pcre_cache);
    size_t size = 0;
    size_t offset = 0;
    size_t count = 0;
    if ((GC_FLAGS(cache) & GC_PERSISTENT) == 0) {
        return; /* it is a request's, and its entries are the engine's own memory */
    }
    zval *value;
    ZEND_HASH_FOREACH_VAL(cache, value) {
        if (size == 0) {
            size = malloc_usable_size(Z_PTR_P(value));
            if (size == 0 || size > LARGEST || !find_counter(Z_PTR_P(value), size, &offset)) {
                return;
            }
        }
        count += movable(value, size, offset) != NULL;
    }
    ZEND_HASH_FOREACH_END();
    char **blocks = count < 2 ? NULL : malloc((count + SCATTERED) * sizeof *blocks);
    if (blocks == NULL) {
        return;
    }
    size_t all = allocate_side_by_side(blocks, count, size);
    if (all != 0) {
        move_entries(cache, blocks + all - count, size, offset);
    }
    free(blocks);
}
