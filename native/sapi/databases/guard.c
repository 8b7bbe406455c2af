/* See guard.h. */
#include "sapi/databases/guard.h"

#include <stdatomic.h>
#include <stddef.h>
#include <sys/mman.h>

enum {
    SERVERS = 16, /* more share a place */
    IN_A_ROW = 5, /* failures without a good life between them */
    FIRST_PAUSE_MS = 30 * 1000,
    FIRST_RETRY_MS = 2 * 1000,
    DOUBLINGS = 5,
    RETRY_DOUBLINGS = 8,
    SILENCE_DOUBLINGS = 3,
    LINES = 64,    /* more are news each time */
    LASTING = 200, /* requests that are worth the start of a worker */
};

static struct guard {
    _Atomic uint32_t start_failures, failure_said;
    _Atomic uint64_t said[LINES]; /* hashes; 0: free */
    struct lasting {
        _Atomic uint32_t failures, pauses;
        _Atomic uint64_t until;
    } servers[SERVERS], files;
    struct silence {
        _Atomic uint64_t server; /* 0: free */
        _Atomic uint64_t until;  /* 0: it answers */
        _Atomic uint32_t times;
    } silences[SERVERS]; /* of further silent servers nothing is recorded */
} * guard;

void databases_guard_open(void) {
    if (guard != NULL) {
        return;
    }
    void *page =
        mmap(NULL, sizeof *guard, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    guard = page == MAP_FAILED ? NULL : page;
}

static uint64_t doubled(uint64_t first, uint32_t times, uint32_t most) {
    return first << (times < most ? times : most);
}

static void failed(struct lasting *kept, uint64_t now) {
    if (atomic_fetch_add(&kept->failures, 1) + 1 >= IN_A_ROW) {
        uint32_t pauses = atomic_fetch_add(&kept->pauses, 1);
        atomic_store(&kept->until, now + doubled(FIRST_PAUSE_MS, pauses, DOUBLINGS));
        /* one more failure after the pause is enough for the next */
        atomic_store(&kept->failures, IN_A_ROW - 1);
    }
}

static void lasted(struct lasting *kept) {
    atomic_store(&kept->failures, 0);
    atomic_store(&kept->pauses, 0);
}

void databases_guard_failed(uint64_t server, uint64_t now) {
    if (guard != NULL) {
        failed(&guard->servers[server % SERVERS], now);
    }
}

void databases_guard_lasted(uint64_t server) {
    if (guard != NULL) {
        lasted(&guard->servers[server % SERVERS]);
    }
}

uint64_t databases_guard_until(uint64_t server, uint64_t now) {
    uint64_t until = guard != NULL ? atomic_load(&guard->servers[server % SERVERS].until) : 0;
    return until > now ? until : 0;
}

void databases_guard_retired(uint64_t requests, uint64_t now) {
    if (guard == NULL) {
        return;
    }
    if (requests < LASTING) {
        failed(&guard->files, now);
    } else {
        lasted(&guard->files);
    }
}

bool databases_guard_allows_files(uint64_t now) {
    return guard != NULL && atomic_load(&guard->files.until) <= now;
}

static struct silence *find_silence(uint64_t server) {
    for (size_t i = 0; guard != NULL && i < SERVERS; i++) {
        if (atomic_load(&guard->silences[i].server) == server) {
            return &guard->silences[i];
        }
    }
    return NULL;
}

/* Returns this server's entry: a free one, or that of a server that answers. NULL: all entries are
 * of silent servers. */
static struct silence *place_for_silence(uint64_t server) {
    struct silence *silence = find_silence(server);
    for (size_t i = 0; silence == NULL && guard != NULL && i < SERVERS; i++) {
        struct silence *there = &guard->silences[i];
        uint64_t other = atomic_load(&there->server);
        if ((other == 0 || atomic_load(&there->until) == 0) &&
            atomic_compare_exchange_strong(&there->server, &other, server)) {
            atomic_store(&there->times, 0);
            silence = there;
        }
    }
    return silence;
}

uint64_t databases_guard_unanswered(uint64_t server, uint64_t now, uint64_t limit_ms) {
    struct silence *silence = place_for_silence(server);
    uint32_t times = silence != NULL ? atomic_fetch_add(&silence->times, 1) : 0;
    uint64_t until = now + doubled(limit_ms, times, SILENCE_DOUBLINGS);
    if (silence != NULL) {
        atomic_store(&silence->until, until);
    }
    return until;
}

void databases_guard_suspected(uint64_t server) {
    struct silence *silence = place_for_silence(server);
    uint64_t answers = 0;
    if (silence != NULL) {
        atomic_compare_exchange_strong(&silence->until, &answers, 1);
    }
}

void databases_guard_answered(uint64_t server) {
    struct silence *silence = find_silence(server);
    if (silence != NULL && atomic_load(&silence->until) != 0) {
        atomic_store(&silence->times, 0);
        atomic_store(&silence->until, 0);
    }
}

uint64_t databases_guard_silent_until(uint64_t server, uint64_t now, uint64_t limit_ms) {
    struct silence *silence = find_silence(server);
    uint64_t until = silence != NULL ? atomic_load(&silence->until) : 0;
    if (until == 0) {
        return 0;
    }
    if (now >= until && atomic_compare_exchange_strong(&silence->until, &until, now + limit_ms)) {
        return 0;
    }
    return until > now ? until : now + limit_ms;
}

bool databases_guard_is_suspicion(uint64_t server) {
    struct silence *silence = find_silence(server);
    return silence != NULL && atomic_load(&silence->times) == 0;
}

uint64_t databases_guard_start_failed(uint64_t now) {
    uint32_t failures = guard != NULL ? atomic_fetch_add(&guard->start_failures, 1) : 0;
    return now + doubled(FIRST_RETRY_MS, failures, RETRY_DOUBLINGS);
}

bool databases_guard_started(void) {
    if (guard == NULL) {
        return false;
    }
    atomic_store(&guard->start_failures, 0);
    return atomic_exchange(&guard->failure_said, 0) != 0;
}

bool databases_guard_is_first_failure(void) {
    return guard == NULL || atomic_exchange(&guard->failure_said, 1) == 0;
}

bool databases_guard_is_news(const char *line) {
    uint64_t hash = 0xcbf29ce484222325; /* FNV-1a */
    for (; *line != '\0'; line++) {
        hash = (hash ^ (uint8_t)*line) * 0x100000001b3;
    }
    hash |= hash == 0;
    for (size_t i = 0; guard != NULL && i < LINES; i++) {
        uint64_t there = 0;
        if (atomic_compare_exchange_strong(&guard->said[i], &there, hash)) {
            return true;
        }
        if (there == hash) {
            return false;
        }
    }
    return true;
}
