/* Cases: the arena, used as Zend's memory manager uses mmap(). */
#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "snapshot.h"

static bool boot_freed; /* by this request */

static bool overlaps(
    const unsigned char *at, size_t len, const unsigned char *block, size_t block_len) {
    return at < block + block_len && block < at + len;
}

static unsigned char *map(size_t len) {
    void *at = mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (at == MAP_FAILED) {
        give_up("mmap of a chunk");
    }
    check(boot_freed ||
              (!overlaps(at, len, boot.chunk, CHUNK) && !overlaps(at, len, boot.huge, HUGE)),
        "a block of the boot is given away");
    return at;
}

static void tag(unsigned char *at, size_t len, unsigned char value) {
    at[0] = value;
    at[len / 2] = value;
    at[len - 1] = value;
}

static bool tagged(const unsigned char *at, size_t len, unsigned char value) {
    return at[0] == value && at[len / 2] == value && at[len - 1] == value;
}

/* Allocates several blocks at a time; none may overlap another. */
static void use_blocks(size_t count, size_t len, bool give_back) {
    unsigned char *blocks[256];
    for (size_t i = 0; i < count; i++) {
        blocks[i] = map(len);
        tag(blocks[i], len, (unsigned char)(i + 1));
    }
    for (size_t i = 0; i < count; i++) {
        check(tagged(blocks[i], len, (unsigned char)(i + 1)), "block %zu of %zu is another's too",
            i, count);
        if (give_back && munmap(blocks[i], len) != 0) {
            give_up("munmap of a block");
        }
    }
}

static void one_chunk(unsigned n) {
    use_blocks(1, CHUNK, n % 2 == 0);
}
static void some_chunks(unsigned n) {
    use_blocks(3 + n, CHUNK, n % 2 == 0);
}
static void many_chunks(unsigned n) {
    use_blocks(45, CHUNK, n % 2 == 0);
}
static void seventy_chunks(unsigned n) {
    use_blocks(70, CHUNK, n % 2 == 0);
}
static void more_than_there_is(unsigned n) {
    use_blocks(250, CHUNK, n % 2 == 0);
}
static void huge_blocks(unsigned n) {
    use_blocks(4 + n % 3, (5U << 20) + n * PAGE, n % 2 == 0);
}
static void odd_blocks(unsigned n) {
    use_blocks(8, (1U << 20) + (1 + n) * PAGE, n % 2 == 0);
}
static void one_very_huge_block(unsigned n) {
    use_blocks(1, 300U << 20, n % 2 == 0);
}

static void in_turns(unsigned n) {
    for (unsigned i = 0; i < 100; i++) {
        unsigned char *chunk = map(CHUNK);
        tag(chunk, CHUNK, (unsigned char)(i + n));
        munmap(chunk, CHUNK);
    }
}

static void random_blocks(unsigned n) {
    (void)n;
    struct {
        unsigned char *at;
        size_t len;
        unsigned char value;
    } blocks[20] = {0};
    for (unsigned i = 0; i < 100; i++) {
        unsigned k = (unsigned)(random_number() % 20);
        if (blocks[k].at != NULL) {
            check(tagged(blocks[k].at, blocks[k].len, blocks[k].value), "a block is another's too");
            munmap(blocks[k].at, blocks[k].len);
            blocks[k].at = NULL;
        } else {
            blocks[k].len = random_number() % 2 == 0
                                ? CHUNK
                                : ((1U << 20) + random_number() % (4U << 20)) / PAGE * PAGE;
            blocks[k].at = map(blocks[k].len);
            blocks[k].value = (unsigned char)i;
            tag(blocks[k].at, blocks[k].len, blocks[k].value);
        }
    }
}

static void free_boot_chunk(unsigned n) {
    boot_freed = true;
    boot.chunk[n] ^= 1;
    munmap(boot.chunk, CHUNK);
}
static void free_boot_huge(unsigned n) {
    (void)n;
    boot_freed = true;
    munmap(boot.huge, HUGE);
}
/* Freed in one turn, in the next it is the boot's again. */
static void free_boot_then_allocate(unsigned n) {
    if (n % 2 == 0) {
        free_boot_chunk(n);
        free_boot_huge(n);
    } else {
        use_blocks(20, CHUNK, false);
    }
}
/* The arena's addresses depend on the snapshot only. */
static void same_place(unsigned n) {
    unsigned char **places = (unsigned char **)(void *)board->scratch;
    for (unsigned i = 0; i < 10; i++) {
        unsigned char *at = map(CHUNK * (1 + i % 2));
        places[i] = n == 0 ? at : places[i];
        check(places[i] == at, "block %u is at %p, was at %p", i, (void *)at, (void *)places[i]);
    }
}
static void free_all_and_use_again(unsigned n) {
    boot_freed = true;
    munmap(boot.huge, HUGE);
    munmap(boot.chunk, CHUNK);
    for (unsigned i = 0; i < 5; i++) {
        memset(map(CHUNK), 0x66 + (int)n, CHUNK);
    }
}

/* zend_mm_chunk_truncate() */
static void truncate_boot_huge(unsigned n) {
    boot_freed = true;
    munmap(boot.huge + (2 << 20), HUGE - (2 << 20));
    tag(map(CHUNK), CHUNK, (unsigned char)n);
}
/* zend_mm_chunk_extend(): a mapping at a hint, refused when it is placed at another address */
static void extend_boot_huge(unsigned n) {
    size_t more = (1 + n) * (1U << 20);
    unsigned char *at =
        mmap(boot.huge + HUGE, more, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (at != MAP_FAILED && at != boot.huge + HUGE) {
        munmap(at, more);
    } else if (at != MAP_FAILED) {
        memset(at, 0x77, more);
    }
}

/* Like zend_mm_chunk_alloc_int(): an unaligned chunk is mapped again, larger, and trimmed */
static void as_zend_aligns(unsigned n) {
    size_t len = CHUNK * (1 + n % 3);
    for (unsigned i = 0; i < 10; i++) {
        unsigned char *at = map(len);
        size_t offset = (uintptr_t)at % CHUNK;
        if (offset != 0) {
            munmap(at, len);
            at = map(len + CHUNK - PAGE);
            offset = (uintptr_t)at % CHUNK;
            if (offset != 0) {
                munmap(at, CHUNK - offset);
                at += CHUNK - offset;
                len > offset ? munmap(at + len, offset - PAGE) : 0;
            }
        }
        check((uintptr_t)at % CHUNK == 0, "aligned at last");
        memset(at, (int)i, len);
    }
}

static void grow_by_mremap(unsigned n) {
    unsigned char *at = map(CHUNK);
    tag(at, CHUNK, 3);
    unsigned char *larger = mremap(at, CHUNK, 2 * CHUNK, n % 2 == 0 ? MREMAP_MAYMOVE : 0);
    if (larger != MAP_FAILED) {
        check(tagged(larger, CHUNK, 3), "what mremap() moved");
        tag(larger, 2 * CHUNK, 4);
    } else {
        check(tagged(at, CHUNK, 3), "what mremap() did not move");
    }
    unsigned char *moved = mremap(boot.chunk, CHUNK, 2 * CHUNK, MREMAP_MAYMOVE);
    if (moved != MAP_FAILED) {
        tag(moved, 2 * CHUNK, 5);
    }
}

static void discard_in_chunk(unsigned n) {
    if (n % 2 == 0) {
        madvise(boot.chunk + 4 * PAGE, 8 * PAGE, MADV_DONTNEED);
    } else {
        raw(SYS_madvise, (long)boot.chunk + 4 * PAGE, 8 * PAGE, MADV_DONTNEED, 0, 0, 0);
    }
}

static void protect_chunk(unsigned n) {
    if (boot_freed) {
        return; /* the arena may give the protected place away */
    }
    mprotect(boot.chunk, CHUNK, n % 2 == 0 ? PROT_READ : PROT_NONE);
    unsigned char *own = map(CHUNK);
    own[0] = 1;
    mprotect(own, CHUNK, PROT_READ);
}

static void shared_chunks(unsigned n) {
    unsigned char *at =
        mmap(NULL, CHUNK, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (at == MAP_FAILED) {
        give_up("mmap");
    }
    memset(at, (int)n, CHUNK);
}

/* Mapped over a chunk that the boot owns: by Zend never, by a library that misbehaves. */
static void map_over_chunk(unsigned n) {
    void *at = mmap(
        boot.chunk, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
    if (at == MAP_FAILED) {
        give_up("mmap");
    }
    boot.chunk[n] = 9;
}
static void unmap_chunk_behind_the_back(unsigned n) {
    (void)n;
    raw(SYS_munmap, (long)boot.chunk, CHUNK, 0, 0, 0, 0);
}
static void unmap_huge_page_behind_the_back(unsigned n) {
    raw(SYS_munmap, (long)boot.huge + (n + 100) * PAGE, PAGE, 0, 0, 0,
        0); /* never touched: no page goes */
}

static const struct test_case cases[] = {
    {.name = "a chunk", .request = one_chunk},
    {.name = "some chunks", .request = some_chunks},
    {.name = "45 chunks", .request = many_chunks, .flags = HEAVY},
    {.name = "70 chunks", .request = seventy_chunks, .flags = HEAVY},
    {.name = "more chunks than the arena holds", .request = more_than_there_is, .flags = HEAVY},
    {.name = "blocks are at the same places in each turn", .request = same_place, .flags = ALONE},
    {.name = "boot blocks are freed, others allocated in the next turn",
        .request = free_boot_then_allocate},
    {.name = "huge blocks", .request = huge_blocks},
    {.name = "blocks of odd size", .request = odd_blocks},
    {.name = "a block of 300 MB", .request = one_very_huge_block},
    {.name = "chunks one after the other", .request = in_turns},
    {.name = "blocks that come and go", .request = random_blocks},
    {.name = "a boot chunk is freed", .request = free_boot_chunk},
    {.name = "a huge boot block is freed", .request = free_boot_huge},
    {.name = "boot blocks are freed and their place is used",
        .request = free_all_and_use_again,
        .flags = HEAVY},
    {.name = "a huge boot block is truncated", .request = truncate_boot_huge},
    {.name = "a huge boot block is extended", .request = extend_boot_huge},
    {.name = "chunks aligned as Zend does it", .request = as_zend_aligns, .flags = HEAVY},
    {.name = "mremap() of chunks", .request = grow_by_mremap},
    {.name = "pages of a chunk are thrown away", .request = discard_in_chunk},
    {.name = "chunks are protected", .request = protect_chunk, .flags = LAST},
    {.name = "shared memory as large as a chunk", .request = shared_chunks},
    {.name = "a mapping over a boot chunk", .request = map_over_chunk, .outcome = EITHER},
    {.name = "a boot chunk is unmapped by a raw system call",
        .request = unmap_chunk_behind_the_back,
        .outcome = RETIRES},
    {.name = "an empty page of a huge boot block is unmapped by a raw system call",
        .request = unmap_huge_page_behind_the_back,
        .outcome = EITHER},
};
const struct case_list arena_cases = CASE_LIST(cases);
