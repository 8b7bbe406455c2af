/* See board.h. */
#include "board.h"

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/mman.h>
#include <sys/stat.h>

/* docs/internals/frames.md, "The board". */
struct board {
    _Atomic uint64_t taken;
    _Atomic uint64_t leaving;
    _Atomic uint64_t snapshot_bytes;
    _Atomic uint64_t shared_bytes;
    uint64_t reserved[4];
    struct board_connection connections[BOARD_CONNECTIONS];
};
_Static_assert(sizeof(struct board_connection) == 608, "the server knows this layout");
_Static_assert(offsetof(struct board, connections) == 64, "the server knows this layout");

static struct board *board;
static bool has_connections;

bool board_open(int fd) {
    struct stat status;
    void *page = mmap(NULL, sizeof *board, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (page == MAP_FAILED) {
        return false;
    }
    board = page;
    /* a driver that only wants the count has made a smaller file: nothing lies behind its end */
    has_connections = fstat(fd, &status) == 0 && status.st_size >= (off_t)sizeof *board;
    return true;
}

void board_count(void) {
    if (board == NULL) {
        return; /* the zygote, warming up */
    }
    /* the worker has one thread; a store that cannot be torn is enough */
    atomic_store_explicit(&board->taken,
        atomic_load_explicit(&board->taken, memory_order_relaxed) + 1, memory_order_release);
}

struct board_connection *board_connections(void) {
    return board != NULL && has_connections ? board->connections : NULL;
}

/* Of a time in nanoseconds: four for each power of two of microseconds. */
static size_t bucket_of(uint64_t nanoseconds) {
    uint64_t quarters = nanoseconds / 250; /* of a microsecond: the four of the first power */
    if (quarters < 4) {
        return 0;
    }
    unsigned power = 63 - (unsigned)__builtin_clzll(quarters);
    size_t bucket = (power - 2) * 4 + (quarters >> (power - 2) & 3);
    return bucket < BOARD_BUCKETS ? bucket : BOARD_BUCKETS - 1;
}

void board_count_reset(struct board_connection *place, uint64_t nanoseconds) {
    place->resets++;
    place->nanoseconds += nanoseconds;
    place->longest = nanoseconds > place->longest ? nanoseconds : place->longest;
    place->times[bucket_of(nanoseconds)]++;
}

void board_tell_leaving(void) {
    if (board != NULL) {
        atomic_store_explicit(&board->leaving, 1, memory_order_relaxed);
    }
}

void board_tell_snapshot(uint64_t bytes, uint64_t shared_bytes) {
    if (board != NULL) {
        atomic_store_explicit(&board->shared_bytes, shared_bytes, memory_order_relaxed);
        atomic_store_explicit(&board->snapshot_bytes, bytes, memory_order_release);
    }
}
