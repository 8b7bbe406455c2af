/* See zend_memory.h. Zend/zend_alloc.c: struct _zend_mm_heap, struct _zend_mm_chunk. */
#include "sapi/models/zend_memory.h"

#include <php.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <zend_alloc.h>
#include <zend_arena.h>
#include <zend_gc.h>

#include "snapshot/snapshot.h"

enum {
    CHUNK = 2 * 1024 * 1024,
    PAGE = 4096,
    PAGES = CHUNK / PAGE,
    BINS = 30,
    HEAD_SEARCHED =
        1024, /* bytes of the heap's and of the chunk's structure that are looked through */
    FREE_HANDLES = 2048, /* of objects: more of them make the table larger */
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

/* The slot that was freed last is at the head of its bin's list. */
static bool is_head(void *const *lists, size_t bin) {
    void *slot = emalloc(bin_sizes[bin]);
    bool was = lists[bin] != slot;
    efree(slot);
    return was && lists[bin] == slot;
}

/* The first bin in use. From PHP 8.4 on, heap protection needs room for two pointers in a free slot, so the next
 * bin serves the smallest size. */
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

/* --- slots for a request ---------------------------------------------------------------------------------------------------------------- */

/* The engine links all slots of a run when the first of them is requested: up to 28 KB for one. With empty lists
 * every request would do so for each size. This prepares one run of each size, with as many linked slots as
 * requests have needed. */
struct run {
    char *start;
    size_t len;
    uint32_t count; /* slots; 0: there is no run */
};
static struct run runs[BINS];
static void **lists_of_heap;
static uint16_t linked[BINS]; /* for this request */
static bool looks;            /* the slots of this request are looked at when it is over */

/* Shared by the zygote and its workers, so that one request's needs help the next in every worker. If two write at
 * once, one request is slower. */
static struct wanted {
    uint32_t requests;
    uint32_t slots[BINS];
} * wanted;

enum {
    FEW_SLOTS = 8,       /* to begin with */
    SMALLEST_SLOTS = 32, /* pages of runs whose use cannot be determined */
    SOME_REQUESTS = 32,  /* each of the first is looked at, then every ... */
    LOOK_EVERY = 16,
};
/* The second word of a slot that was not handed out. */
static const uintptr_t UNUSED = (uintptr_t)0x9e3779b97f4a7c15;

/* Since 8.4 a free slot has a second, encoded link at its end. */
static bool links_are_plain(void) {
    return PHP_VERSION_ID < 80400;
}

/* The smallest slots have room for a link only. */
static bool has_room_for_mark(size_t bin) {
    return bin_sizes[bin] > sizeof(void *);
}

/* Slots of this size to link. */
static uint32_t wanted_slots(size_t bin) {
    uint32_t slots = __atomic_load_n(&wanted->slots[bin], __ATOMIC_RELAXED);
    return slots < runs[bin].count ? slots : runs[bin].count;
}

static void reserve_run(size_t bin, void **list) {
    const size_t size = bin_sizes[bin];
    char *slot = emalloc(size);
    efree(slot);
    uint32_t count = 0;
    for (char *at = *list; at != NULL && at == slot + count * size; at = *(void **)at) {
        count++;
    }
    *list = NULL;
    if (count > 1 && (uintptr_t)slot % PAGE == 0) {
        runs[bin] = (struct run){slot, (count * size + PAGE - 1) & ~(size_t)(PAGE - 1), count};
        wanted->slots[bin] = has_room_for_mark(bin) ? FEW_SLOTS : SMALLEST_SLOTS;
    }
}

/* The lists are empty. */
static void reserve_runs(size_t first, void **lists) {
    if (!links_are_plain() || wanted != NULL) {
        return;
    }
    void *memory =
        mmap(NULL, sizeof *wanted, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) {
        return;
    }
    wanted = memory;
    lists_of_heap = lists;
    for (size_t bin = first; bin < BINS; bin++) {
        reserve_run(bin, lists + bin);
    }
}

void zend_memory_refill(void) {
    if (wanted == NULL) {
        return;
    }
    uint32_t requests = __atomic_fetch_add(&wanted->requests, 1, __ATOMIC_RELAXED);
    looks = requests < SOME_REQUESTS || requests % LOOK_EVERY == 0;
    for (size_t bin = 0; bin < BINS; bin++) {
        const size_t size = bin_sizes[bin];
        linked[bin] = (uint16_t)wanted_slots(bin);
        if (linked[bin] == 0) {
            continue;
        }
        char *const last = runs[bin].start + (linked[bin] - 1) * size;
#pragma GCC unroll 4
        for (char *slot = runs[bin].start; slot < last; slot += size) {
            *(void **)slot = slot + size;
        }
        *(void **)last = NULL;
        for (char *slot = runs[bin].start; looks && has_room_for_mark(bin) && slot <= last;
             slot += size) {
            ((uintptr_t *)slot)[1] = UNUSED;
        }
        lists_of_heap[bin] = runs[bin].start;
    }
}

void zend_memory_learn(void) {
    for (size_t bin = 0; looks && bin < BINS; bin++) {
        uint32_t used = linked[bin];
        if (used == 0 || !has_room_for_mark(bin)) {
            continue;
        }
        while (used > 0 &&
               ((uintptr_t *)(runs[bin].start + (used - 1) * bin_sizes[bin]))[1] == UNUSED) {
            used--;
        }
        if (used == linked[bin]) {
            __atomic_store_n(&wanted->slots[bin], used * 2, __ATOMIC_RELAXED);
        } else if (used + 1 < linked[bin]) {
            __atomic_store_n(&wanted->slots[bin], linked[bin] - 1U, __ATOMIC_RELAXED);
        }
    }
    looks = false;
}

void zend_memory_detach_handles(void) {
    zend_objects_store *store = &EG(objects_store);
    while (store->top > 1 && !IS_OBJ_VALID(store->object_buckets[store->top - 1])) {
        store->top--;
    }
    store->free_list_head = -1;
    if (store->size - store->top < FREE_HANDLES) {
        store->size += FREE_HANDLES;
        store->object_buckets =
            erealloc(store->object_buckets, store->size * sizeof(zend_object *));
    }
}

void zend_memory_detach(void) {
    if (!is_zends_own()) {
        return;
    }
    zend_mm_gc(zend_mm_get_heap());
    size_t first = first_bin();
    void **lists = free_lists(first);
    if (lists != NULL) {
        memset(lists + first, 0, (BINS - first) * sizeof *lists);
        reserve_runs(first, lists);
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

/* Returns the offset of a chunk's bits of used pages; 0: not found. The map of pages follows them, and the
 * first page is a run of one. */
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
    for (size_t bin = 0; bin < BINS; bin++) {
        add(&list, (uintptr_t)runs[bin].start, (uintptr_t)runs[bin].start + runs[bin].len);
    }
    const zend_objects_store *store = &EG(objects_store);
    add(&list, (uintptr_t)(store->object_buckets + store->top),
        (uintptr_t)(store->object_buckets + store->size));
    add(&list, (uintptr_t)EG(vm_stack_top), (uintptr_t)EG(vm_stack_end));
    add(&list, (uintptr_t)CG(arena)->ptr, (uintptr_t)CG(arena)->end);
    return list.len;
}
