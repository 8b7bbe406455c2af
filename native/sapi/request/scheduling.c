/* See scheduling.h. */
#include "sapi/request/scheduling.h"

#include <sched.h>
#include <stdatomic.h>
#include <stddef.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "sapi/request/shared_counters.h"

/* Past the interposed calls, which watch what requests do. */
static void take(int policy) {
    long own = syscall(SYS_sched_getscheduler, 0);
    if (own != SCHED_OTHER && own != SCHED_BATCH) {
        return; /* an operator's choice: SCHED_FIFO, SCHED_IDLE, ... */
    }
    struct sched_param none = {0};
    syscall(SYS_sched_setscheduler, 0, policy, &none);
}

void scheduling_of_new_worker(void) {
    take(SCHED_BATCH);
}

void scheduling_follow(void) {
    _Atomic uint32_t *word = shared_counters_scheduling();
    if (word == NULL) {
        return;
    }
    uint32_t bits = atomic_load_explicit(word, memory_order_relaxed);
    bool are_long = (bits & REQUESTS_ARE_LONG) != 0;
    if (are_long != ((bits & POLICY_OF_LONG_REQUESTS) != 0)) {
        take(are_long ? SCHED_OTHER : SCHED_BATCH);
        atomic_fetch_xor_explicit(word, POLICY_OF_LONG_REQUESTS, memory_order_relaxed);
    }
}
