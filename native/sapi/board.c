/* See board.h. */
#include "board.h"

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/mman.h>
#include <sys/stat.h>

enum { REQUESTS = 8 };
enum request_state { ABORTED, OFFERED, BEGUN, WITHDRAWN };

/* docs/internals/frames.md, "The board". */
struct board {
    _Atomic uint64_t taken;
    _Atomic uint64_t leaving;
    _Atomic uint64_t snapshot_bytes;
    _Atomic uint64_t shared_bytes;
    /* requests written ahead, by their number: REQUESTS values of number << 2 | enum request_state */
    _Atomic uint32_t requests[REQUESTS];
    struct board_connection connections[BOARD_CONNECTIONS];
};
_Static_assert(sizeof(struct board_connection) == 608, "the server knows this layout");
_Static_assert(offsetof(struct board, connections) == 64, "the server knows this layout");

static struct board *board;
/* A driver that only wants the count has made a smaller file: nothing lies behind its end. */
static bool is_whole;

bool board_open(int fd) {
    struct stat status;
    void *page = mmap(NULL, sizeof *board, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (page == MAP_FAILED) {
        return false;
    }
    board = page;
    is_whole = fstat(fd, &status) == 0 && status.st_size >= (off_t)sizeof *board;
    return true;
}

static uint32_t state_of(uint64_t number, enum request_state state) {
    return (uint32_t)number << 2 | state;
}

bool board_begin(void) {
    if (board == NULL) {
        return true; /* the zygote, warming up */
    }
    uint64_t number = atomic_load_explicit(&board->taken, memory_order_relaxed) + 1;
    uint32_t offered = state_of(number, OFFERED);
    bool begun = !is_whole || atomic_compare_exchange_strong(&board->requests[number % REQUESTS],
                                  &offered, state_of(number, BEGUN)) ||
                 offered != state_of(number, WITHDRAWN);
    /* the worker has one thread; a store that cannot be torn is enough */
    atomic_store_explicit(&board->taken, number, memory_order_release);
    return begun;
}

bool board_knows_aborts(void) {
    return board != NULL && is_whole;
}

bool board_is_aborted(void) {
    uint64_t number = atomic_load_explicit(&board->taken, memory_order_relaxed);
    return atomic_load_explicit(&board->requests[number % REQUESTS], memory_order_relaxed) ==
           state_of(number, ABORTED);
}

struct board_connection *board_connections(void) {
    return board != NULL && is_whole ? board->connections : NULL;
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
