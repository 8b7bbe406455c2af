/* See zend_memory.h. Zend/zend_alloc.c: struct _zend_mm_heap, struct _zend_mm_chunk. */
#include "sapi/models/zend_memory.h"

#include <php.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#include <zend_alloc.h>
#include <zend_arena.h>
#include <zend_gc.h>

enum {
    CHUNK = 2 * 1024 * 1024,
    PAGE = 4096,
    PAGES = CHUNK / PAGE,
    BINS = 30,
    HEAD_SEARCHED =
        1024, /* bytes of the heap's and of the chunk's structure that are looked through */
};

/* The first fields of a chunk have been the same since PHP 7.0. */
struct chunk {
    void *heap;
    struct chunk *next;
    struct chunk *prev;
    uint32_t free_pages;
    uint32_t free_tail;
    uint32_t num;
};

/* zend_alloc_sizes.h, ZEND_MM_BINS_INFO */
static const size_t bin_sizes[BINS] = {8, 16, 24, 32, 40, 48, 56, 64, 80, 96, 112, 128, 160, 192,
    224, 256, 320, 384, 448, 512, 640, 768, 896, 1024, 1280, 1536, 1792, 2048, 2560, 3072};

static bool is_zends_own(void) {
    return is_zend_mm() && !zend_mm_is_custom_heap(zend_mm_get_heap());
}

/* What was freed last heads its bin's list. */
static bool is_head(void *const *lists, size_t bin) {
    void *slot = emalloc(bin_sizes[bin]);
    bool was = lists[bin] != slot;
    efree(slot);
    return was && lists[bin] == slot;
}

/* The first bin in use: heap protection needs room for two pointers in a free slot, so that from PHP 8.4 on the smallest is served by the
 * one behind it. */
static size_t first_bin(void) {
    void *smallest = emalloc(bin_sizes[0]);
    efree(smallest);
    void *next = emalloc(bin_sizes[1]);
    efree(next);
    return smallest == next ? 1 : 0;
}

/* zend_mm_heap.free_slot, or NULL. */
static void **free_lists(size_t first) {
    char *heap = (char *)zend_mm_get_heap();
    void *slot = emalloc(bin_sizes[first]);
    efree(slot);
    for (size_t at = 0; at + BINS * sizeof(void *) <= HEAD_SEARCHED; at += sizeof(void *)) {
        void **lists = (void **)(heap + at);
        if (lists[first] != slot) {
            continue;
        }
        bool all = true;
        for (size_t bin = first; bin < BINS && all; bin++) {
            all = is_head(lists, bin);
        }
        if (all) {
            return lists;
        }
    }
    return NULL;
}

bool zend_memory_is_known(void) {
    return !is_zends_own() || free_lists(first_bin()) != NULL;
}

void zend_memory_detach(void) {
    gc_collect_cycles();
    if (!is_zends_own()) {
        return;
    }
    zend_mm_gc(zend_mm_get_heap());
    size_t first = first_bin();
    void **lists = free_lists(first);
    if (lists != NULL) {
        memset(lists + first, 0, (BINS - first) * sizeof *lists);
    }
}

static struct chunk *main_chunk(void) {
    return (struct chunk *)((uintptr_t)zend_mm_get_heap() & ~(uintptr_t)(CHUNK - 1));
}

static uint32_t count_free(const uint64_t *map) {
    uint32_t used = 0;
    for (size_t i = 0; i < PAGES / 64; i++) {
        used += (uint32_t)__builtin_popcountll(map[i]);
    }
    return PAGES - used;
}

/* Where a chunk keeps the bits of its used pages; 0: not found. The map of pages follows it, and the first page is a run of one. */
static size_t free_map_offset(const struct chunk *chunk) {
    const uint32_t first_page = 0x40000001; /* ZEND_MM_LRUN(ZEND_MM_FIRST_PAGE) */
    for (size_t at = sizeof(struct chunk) + PAGES / 8; at < PAGE - sizeof first_page; at += 8) {
        const char *map = (const char *)chunk + at - PAGES / 8;
        uint32_t entry;
        uint64_t bits[PAGES / 64];
        memcpy(&entry, (const char *)chunk + at, sizeof entry);
        memcpy(bits, map, sizeof bits);
        if (entry == first_page && (bits[0] & 1) != 0 && count_free(bits) == chunk->free_pages) {
            return at - PAGES / 8;
        }
    }
    return 0;
}

struct list {
    struct snapshot_range *ranges;
    size_t len, max;
};

static void add(struct list *list, uintptr_t start, uintptr_t end) {
    if (start >= end || list->len == list->max) {
        return;
    }
    if (list->len > 0 && list->ranges[list->len - 1].end == start) {
        list->ranges[list->len - 1].end = end;
        return;
    }
    list->ranges[list->len++] = (struct snapshot_range){start, end};
}

static void add_free_pages(struct list *list, const struct chunk *chunk, size_t offset) {
    uint64_t bits[PAGES / 64];
    memcpy(bits, (const char *)chunk + offset, sizeof bits);
    if (count_free(bits) != chunk->free_pages) {
        return;
    }
    for (size_t page = 1; page < PAGES; page++) {
        if ((bits[page / 64] >> (page % 64) & 1) == 0) {
            uintptr_t start = (uintptr_t)chunk + page * PAGE;
            add(list, start, start + PAGE);
        }
    }
}

size_t zend_memory_dead(struct snapshot_range *ranges, size_t max) {
    struct list list = {.ranges = ranges, .max = max};
    if (is_zends_own()) {
        const struct chunk *first = main_chunk();
        size_t offset = free_map_offset(first);
        const struct chunk *chunk = first;
        do {
            if (offset == 0 || chunk->heap != (void *)zend_mm_get_heap()) {
                break;
            }
            add_free_pages(&list, chunk, offset);
            chunk = chunk->next;
        } while (chunk != first);
    }
    add(&list, (uintptr_t)EG(vm_stack_top), (uintptr_t)EG(vm_stack_end));
    add(&list, (uintptr_t)CG(arena)->ptr, (uintptr_t)CG(arena)->end);
    return list.len;
}
