/* See databases.h. Which connections are kept: keep.c. */
#include "sapi/databases/databases.h"

#include <errno.h>
#include <poll.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <unistd.h>

#include "ext/monotonic.h"
#include "sapi/databases/connections.h"
#include "sapi/databases/guard.h"
#include "sapi/databases/places.h"
#include "sapi/databases/resets.h"
#include "sapi/output/log.h"
#include "sapi/request/channel.h"
#include "snapshot/snapshot.h"

enum {
    PAGE = 4096,
    PLACE_LOOK_MS = 2000,
    LATE_NS = 500 * 1000, /* more than giving the request to another worker costs */
};

struct databases *db;

uint64_t databases_milliseconds(void) {
    return monotonic_nanoseconds() / 1000000;
}

void databases_draw(void *to, size_t len) {
    if (getrandom(to, len, 0) != (ssize_t)len) {
        log_line(LOG_CRIT, LOG_SOURCE_WORKER, "the kernel has no random numbers");
        _exit(SNAPSHOT_EXIT_RETIRED);
    }
}

uint64_t databases_spread(uint64_t duration) {
    uint32_t random;
    databases_draw(&random, sizeof random);
    return duration - duration / 10 * (random % 1024) / 1024;
}

uint64_t databases_earlier(uint64_t first, uint64_t second) {
    return second != 0 && (first == 0 || second < first) ? second : first;
}

void databases_try_again(uint64_t at) {
    db->retry_at = databases_earlier(db->retry_at, at);
}

/* HEARTH_DATABASES has five numbers, and below them a line for each connector (places.h). The numbers are: whether to keep connections; the
 * idle time in ms after which the server is asked first; the maximum age in ms (both 0: unlimited); the time limit of a reset; and how long
 * a starting worker waits for a server. */
static void read_settings(void) {
    const char *text = getenv("HEARTH_DATABASES");
    unsigned long keep = 1, idle = 30000, lifetime = 3600000, answer = 1000, connect = 5000;
    if (text != NULL) {
        sscanf(text, "%lu %lu %lu %lu %lu", &keep, &idle, &lifetime, &answer, &connect);
        const char *lines = strchr(text, '\n');
        places_open(lines != NULL ? lines + 1 : "");
    }
    db->keep = keep != 0;
    db->idle_ms = idle;
    db->lifetime_ms = lifetime;
    db->answer_ms = answer;
    db->connect_ms = connect;
}

void databases_open(bool keeps) {
    if (!libc_shim_works()) {
        return;
    }
    size_t len = (sizeof *db + 2 * PAGE) & ~(size_t)(PAGE - 1);
    db = snapshot_keep(len);
    /* the whole pages of it; at its ends lie numbers only */
    uintptr_t start = ((uintptr_t)db->list + PAGE - 1) & ~(uintptr_t)(PAGE - 1);
    uintptr_t end = ((uintptr_t)(db->list + CONNECTIONS) + PAGE) & ~(uintptr_t)(PAGE - 1);
    madvise((void *)(start - PAGE), end - start + PAGE, MADV_DONTDUMP);
    if (keeps) {
        /* pages that requests will use are touched before the snapshot, so that their faults need no explanation */
        memset(db->list, 0, 8 * sizeof *db->list);
    }
    read_settings();
    db->serves = !keeps;
    connections_follow();
}

/* --- between requests ---------------------------------------------------------------------------------------------------------------------- */

bool databases_await(void) {
    if (db == NULL || db->kept == 0) {
        return false;
    }
    uint64_t began = 0;
    for (size_t i = 0; i < db->used; i++) {
        struct connection *connection = &db->list[i];
        if (connection->fd == 0 || !connection->awaited) {
            continue;
        }
        began = began == 0 ? monotonic_nanoseconds() : began;
        const char *why = resets_finish(connection);
        if (why != NULL) {
            resets_retire(connection, why);
        }
        if (++connection->resets == LASTING) {
            databases_guard_lasted(connection->server);
        }
        uint64_t took = monotonic_nanoseconds() - connection->sent_at;
        db->resets++;
        db->reset_ns += took;
        if (connection->place != NULL) {
            shared_counters_add_reset(connection->place, took);
        }
    }
    if (began != 0) {
        /* an eighth: one that is late changes nothing, a few do, and none for long */
        uint64_t waited = monotonic_nanoseconds() - began;
        waited = waited < 8 * LATE_NS ? waited : 8 * LATE_NS;
        db->waited_ns += waited / 8 - db->waited_ns / 8;
    }
    bool announces = db->announces;
    db->announces = false;
    return announces;
}

bool databases_prove_late(void) {
    for (size_t i = 0; db != NULL && db->waited_ns > LATE_NS && i < db->used; i++) {
        const struct connection *connection = &db->list[i];
        if (connection->fd != 0 && connection->kept &&
            (connection->awaited || session_is_used(&connection->session))) {
            return true;
        }
    }
    return false;
}

bool databases_announce_later(void) {
    if (db != NULL) {
        db->announces = databases_prove_late();
    }
    return db != NULL && db->announces;
}

/* Asks the servers that have not answered for a long time. */
static void ask_the_idle(uint64_t now) {
    for (size_t i = 0; i < db->used; i++) {
        struct connection *connection = &db->list[i];
        if (connection->fd == 0 || !connection->kept || now < connection->last_word + db->idle_ms) {
            continue;
        }
        const char *why = resets_write(connection);
        if (why == NULL) {
            why = resets_finish(connection);
        }
        if (why != NULL) {
            resets_retire(connection, why);
        }
    }
}

void databases_await_place(int connector) {
    db->wanted |= (uint64_t)1 << (connector % 64);
    db->wanted_at = databases_milliseconds() + databases_spread(PLACE_LOOK_MS);
}

/* Only a worker that starts can take a place, so this one ends. It stays while all are taken, because ending would not help. */
static bool may_have_place(void) {
    for (int connector = 0; connector < 64; connector++) {
        if ((db->wanted >> connector & 1) != 0 && places_are_free(connector)) {
            return true;
        }
    }
    return false;
}

static void end_in_time(uint64_t now) {
    if (db->ends_at != 0 && now >= db->ends_at) {
        resets_leave(
            LOG_NOTICE, "connections of databases have lived long enough (databases.max_lifetime)");
    }
    if (db->retry_at != 0 && now >= db->retry_at) {
        resets_leave(LOG_DEBUG, "connections of databases are tried again");
    }
    if (db->wanted_at != 0 && now >= db->wanted_at) {
        if (may_have_place()) {
            resets_leave(LOG_DEBUG, "a connector has a place for a connection again");
        }
        db->wanted_at = now + databases_spread(PLACE_LOOK_MS);
    }
}

void databases_wait(void) {
    if (db == NULL || (db->kept == 0 && db->retry_at == 0 && db->wanted_at == 0)) {
        return;
    }
    for (;;) {
        struct pollfd wait[1 + KEPT] = {{.fd = channel_descriptor(), .events = POLLIN}};
        struct connection *of[1 + KEPT];
        nfds_t count = 1;
        uint64_t due =
            databases_earlier(databases_earlier(db->ends_at, db->retry_at), db->wanted_at);
        for (size_t i = 0; i < db->used && count <= db->kept; i++) {
            struct connection *connection = &db->list[i];
            if (connection->fd != 0 && connection->kept) {
                of[count] = connection;
                wait[count++] = (struct pollfd){.fd = connection->fd, .events = POLLIN | POLLRDHUP};
                if (db->idle_ms > 0) {
                    due = databases_earlier(due, connection->last_word + db->idle_ms);
                }
            }
        }
        int timeout = -1;
        if (channel_has_input()) {
            timeout = 0;
        } else if (due != 0) {
            uint64_t now = databases_milliseconds();
            uint64_t left = due > now ? due - now : 0;
            timeout = left < 3600000 ? (int)left : 3600000;
        }
        int ready = poll(wait, count, timeout);
        if (ready < 0 && errno == EINTR) {
            continue;
        }
        for (nfds_t i = 1; i < count; i++) {
            if (wait[i].revents != 0) {
                resets_retire(of[i], "the server has closed it, or spoke unasked");
            }
        }
        if (channel_has_input() || wait[0].revents != 0) {
            return;
        }
        uint64_t now = databases_milliseconds();
        end_in_time(now);
        if (db->idle_ms > 0) {
            ask_the_idle(now);
        }
    }
}

void databases_end_request(void) {
    if (db == NULL) {
        return;
    }
    for (size_t i = 0; i < db->used; i++) {
        struct connection *connection = &db->list[i];
        if (connection->fd == 0) {
            continue;
        }
        if (!connection->kept) {
            if (connections_is_same(connection)) {
                resets_take_leave(connection);
            }
            connections_forget(connection);
            continue;
        }
        if (!session_is_used(&connection->session) && session_doubt(&connection->session) == NULL) {
            continue;
        }
        connection->sent_at = monotonic_nanoseconds();
        const char *why = resets_write(connection);
        if (why != NULL) {
            resets_retire(connection, why);
        }
    }
    if (db->ends_at != 0 || db->retry_at != 0 || db->wanted_at != 0) {
        end_in_time(databases_milliseconds());
    }
}

void databases_close(void) {
    if (db != NULL) {
        resets_say_goodbyes();
    }
}

void databases_leave(void) {
    libc_shim_open(NULL);
    db = NULL;
}

void databases_say_statistics(void) {
    if (db != NULL && db->kept > 0 && getenv("HEARTH_SNAPSHOT_STATISTICS") != NULL) {
        fprintf(stderr,
            "databases: %zu kept, %lu resets, mean %lu ns from writing to proof; %lu goodbyes\n",
            db->kept, db->resets, db->resets > 0 ? db->reset_ns / db->resets : 0, db->goodbyes);
    }
}
