/* See shared_counters.h. */
#include "sapi/request/shared_counters.h"

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/mman.h>
#include <sys/stat.h>

enum { REQUESTS = 32 };
enum request_state { ABORTED, OFFERED, BEGUN, WITHDRAWN };

/* docs/internals/frames.md, "The shared counters". */
struct shared_counters {
    _Atomic uint64_t taken;
    _Atomic uint32_t leaving;
    _Atomic uint32_t scheduling; /* enum scheduling_bits */
    _Atomic uint64_t snapshot_bytes;
    _Atomic uint64_t shared_bytes;
    /* requests written ahead, by their number: values of number << 2 | enum request_state */
    _Atomic uint32_t requests[REQUESTS];
    struct connection_counters connections[COUNTED_CONNECTIONS];
    struct snapshot_verified verified;
};
_Static_assert(sizeof(struct snapshot_verified) == 24, "the server knows this layout");
_Static_assert(sizeof(struct connection_counters) == 608, "the server knows this layout");
_Static_assert(
    offsetof(struct shared_counters, connections) == 160, "the server knows this layout");

static struct shared_counters *counters;
/* A driver that needs only the count has created a smaller file: do not map beyond its end. */
static bool is_whole;

bool shared_counters_open(int fd) {
    struct stat status;
    void *page = mmap(NULL, sizeof *counters, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (page == MAP_FAILED) {
        return false;
    }
    counters = page;
    is_whole = fstat(fd, &status) == 0 && status.st_size >= (off_t)sizeof *counters;
    return true;
}

static uint32_t state_of(uint64_t number, enum request_state state) {
    return (uint32_t)number << 2 | state;
}

bool shared_counters_begin(void) {
    if (counters == NULL) {
        return true; /* the zygote, warming up */
    }
    uint64_t number = atomic_load_explicit(&counters->taken, memory_order_relaxed) + 1;
    uint32_t offered = state_of(number, OFFERED);
    bool begun = !is_whole ||
                 atomic_compare_exchange_strong(
                     &counters->requests[number % REQUESTS], &offered, state_of(number, BEGUN)) ||
                 offered != state_of(number, WITHDRAWN);
    /* the worker has one thread; a store that cannot be torn is enough */
    atomic_store_explicit(&counters->taken, number, memory_order_release);
    return begun;
}

bool shared_counters_know_aborts(void) {
    return counters != NULL && is_whole;
}

bool shared_counters_say_aborted(void) {
    uint64_t number = atomic_load_explicit(&counters->taken, memory_order_relaxed);
    return atomic_load_explicit(&counters->requests[number % REQUESTS], memory_order_relaxed) ==
           state_of(number, ABORTED);
}

_Atomic uint32_t *shared_counters_scheduling(void) {
    return counters != NULL && is_whole ? &counters->scheduling : NULL;
}

struct snapshot_verified *shared_counters_verified(void) {
    return counters != NULL && is_whole ? &counters->verified : NULL;
}

struct connection_counters *shared_counters_connections(void) {
    return counters != NULL && is_whole ? counters->connections : NULL;
}

/* Returns the bucket of a time in nanoseconds: four for each power of two of microseconds. */
static size_t bucket_of(uint64_t nanoseconds) {
    uint64_t quarters = nanoseconds / 250; /* of a microsecond: the four of the first power */
    if (quarters < 4) {
        return 0;
    }
    unsigned power = 63 - (unsigned)__builtin_clzll(quarters);
    size_t bucket = (power - 2) * 4 + (quarters >> (power - 2) & 3);
    return bucket < TIME_BUCKETS ? bucket : TIME_BUCKETS - 1;
}

void shared_counters_add_reset(struct connection_counters *place, uint64_t nanoseconds) {
    place->resets++;
    place->nanoseconds += nanoseconds;
    place->longest = nanoseconds > place->longest ? nanoseconds : place->longest;
    place->times[bucket_of(nanoseconds)]++;
}

void shared_counters_tell_leaving(void) {
    if (counters != NULL) {
        atomic_store_explicit(&counters->leaving, 1, memory_order_relaxed);
    }
}

void shared_counters_tell_snapshot(uint64_t bytes, uint64_t shared_bytes) {
    if (counters != NULL) {
        atomic_store_explicit(&counters->shared_bytes, shared_bytes, memory_order_relaxed);
        atomic_store_explicit(&counters->snapshot_bytes, bytes, memory_order_release);
    }
}
