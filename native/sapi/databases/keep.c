/* What of databases.h comes before the snapshot: which connections are kept. */
#include "sapi/databases/databases.h"

#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "sapi/boot/boot_descriptors.h"
#include "sapi/databases/connections.h"
#include "sapi/databases/guard.h"
#include "sapi/databases/opening.h"
#include "sapi/databases/places.h"
#include "sapi/databases/resets.h"
#include "sapi/output/log.h"

enum {
    KEEPALIVE_S = 60,
    SILENCE_MS =
        120 *
        1000, /* time for unacknowledged data: long, because a server that waits for a lock may read nothing */
};

/* --- one connection ------------------------------------------------------------------------------------------------------------------ */

static size_t places_held(int connector) {
    size_t held = 0;
    for (size_t i = 0; i < db->used; i++) {
        const struct connection *connection = &db->list[i];
        held +=
            connection->fd != 0 && connection->place_fd != 0 && connection->connector == connector;
    }
    return held;
}

/* Returns whether it has kept more than it would, had it known of the later connections. */
static bool keeps_too_many(void) {
    for (size_t i = 0; i < db->used; i++) {
        const struct connection *connection = &db->list[i];
        if (connection->fd != 0 && connection->place_fd != 0 &&
            places_are_too_many(connection->connector, places_held(connection->connector))) {
            return true;
        }
    }
    return false;
}

/* NULL: this worker may keep it as far as the connector's sessions go. */
static const char *take_place(struct connection *connection) {
    static char failed[128];
    if (connection->connector == PLACES_UNCOUNTED || connection->place_fd != 0) {
        return NULL;
    }
    int fd = places_take(connection->connector, places_held(connection->connector));
    connection->refused = fd == PLACES_NONE || fd == PLACES_ALL_TAKEN;
    switch (fd) {
    case PLACES_UNCOUNTED:
        return NULL;
    case PLACES_NONE:
        return "its connector needs more `sessions` for as many connections of each worker; each "
               "request borrows one";
    case PLACES_FAILED:
        snprintf(failed, sizeof failed, "the places of its connector cannot be opened: %s",
            strerror(errno));
        return failed;
    case PLACES_ALL_TAKEN:
        databases_await_place(connection->connector);
        return "other workers keep all of its connector's `sessions` but one; tried again later";
    default:
        connection->place_fd = fd;
        return NULL;
    }
}

static void keep_alive(int fd) {
    int on = 1, after = KEEPALIVE_S, silence = SILENCE_MS;
    fcntl(fd, F_SETFD, FD_CLOEXEC);
    setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
    /* these fail on unix sockets */
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &after, sizeof after);
    setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &silence, sizeof silence);
}

/* NULL: the server's answer is the one that is expected. */
static const char *ask(struct connection *connection) {
    uint8_t question[SESSION_RESET];
    size_t len = session_write_question(&connection->session, question);
    if (len == 0) {
        return session_doubt(&connection->session);
    }
    return resets_write_bytes(connection->fd, question, len) ? resets_finish(connection)
                                                             : "its socket did not take a question";
}

/* NULL: it is kept. A reset now is the proof that this server can be put back, and requests find what it leaves. */
static const char *try_to_keep(struct connection *connection) {
    switch (session_protocol(&connection->session)) {
    case SESSION_UNKNOWN:
        return "nothing was said over it yet, so its protocol is not known";
    case SESSION_FOREIGN:
        return "its protocol is none that can be put back";
    default:
        break;
    }
    if (!db->keep) {
        return "keeping is switched off (databases.keep)";
    }
    if (db->kept == KEPT) {
        return "a worker keeps 16 connections at most";
    }
    const char *why = session_learn(&connection->session);
    if (why != NULL) {
        return why;
    }
    uint64_t now = databases_milliseconds();
    uint64_t until = databases_guard_until(connection->server, now);
    if (until != 0) {
        databases_try_again(until + 1);
        return "it did not last in the workers before; tried again later";
    }
    why = take_place(connection);
    if (why != NULL) {
        return why;
    }
    keep_alive(connection->fd);
    why = ask(connection);
    why = why == NULL ? resets_write(connection) : why;
    why = why == NULL ? resets_finish(connection) : why;
    why = why == NULL ? ask(connection) : why;
    if (why == NULL) {
        connection->kept = true;
        db->kept++;
        resets_tell(connection, CONNECTION_KEPT, "");
        return NULL;
    }
    connections_give_place_back(connection);
    if (why == resets_unanswered) {
        connection->judged = true;
        databases_try_again(databases_guard_unanswered(connection->server, now, db->connect_ms));
    }
    return why;
}

/* Kept ones that were used since are learned once more. */
static const char *settle(struct connection *connection) {
    if (connection->kept && !session_is_used(&connection->session)) {
        return NULL;
    }
    db->kept -= connection->kept;
    connection->kept = false;
    const char *why = try_to_keep(connection);
    if (why != NULL) {
        resets_tell(connection, CONNECTION_REFUSED, why);
    }
    return why;
}

bool databases_keep(void) {
    if (db == NULL || db->serves) {
        return false;
    }
    bool all = true;
    for (size_t i = 0; i < db->used; i++) {
        struct connection *connection = &db->list[i];
        if (connection->fd == 0 || !connections_is_same(connection)) {
            continue;
        }
        const char *why = settle(connection);
        if (why != NULL) {
            all = false;
            resets_say_refused(connection, LOG_NOTICE, "is not kept", why, "");
        }
    }
    return all && db->kept > 0;
}

bool databases_keep_files(void) {
    if (db == NULL || !db->keep || db->serves) {
        return false;
    }
    if (databases_guard_allows_files(databases_milliseconds())) {
        return true;
    }
    static const char why[] =
        "requests open their own databases of SQLite for now: five workers in a row that had them "
        "open ended after a few requests";
    log_line(databases_guard_is_news(why) ? LOG_NOTICE : LOG_DEBUG, LOG_SOURCE_WORKER, "%s", why);
    return false;
}

void databases_start(void) {
    if (db != NULL) {
        db->starting = true;
        db->shim.waiting = opening_poll;
        opening_begin(db->connect_ms);
    }
}

/* The callbacks are over. Returns whether a server did not answer. */
static bool end_start(void) {
    db->starting = false;
    db->shim.waiting = NULL;
    uint64_t again_at = opening_end();
    if (again_at != 0 && !db->serves) {
        databases_try_again(again_at); /* others serve one request: the next process tries itself */
    }
    return again_at != 0;
}

/* Servers that got no command have delayed no worker. */
static void note_connected(struct connection *connection) {
    struct sockaddr peer;
    socklen_t len = sizeof peer;
    if (!connection->judged && getpeername(connection->fd, &peer, &len) == 0) {
        connections_note_answer(connection);
    }
}

/* More than can be followed, or with numbers that are not. */
static void cut_unfollowed(int fd) {
    struct sockaddr_un peer;
    socklen_t len = sizeof peer;
    struct connection *connection = fd < LIBC_SHIM_DESCRIPTORS ? connections_of(fd) : NULL;
    bool is_kept = connection != NULL && connection->kept;
    bool named = getpeername(fd, (struct sockaddr *)&peer, &len) == 0 && len <= sizeof peer;
    if (is_kept || (named && connections_is_broker((struct sockaddr *)&peer, len))) {
        return;
    }
    char name[144], line[320];
    socket_name_peer(fd, name, sizeof name);
    snprintf(line, sizeof line,
        "%s cannot stay open: its beginning was not seen; it is closed, and requests open their "
        "own",
        name);
    log_line(
        databases_guard_is_news(line) ? LOG_WARNING : LOG_DEBUG, LOG_SOURCE_WORKER, "%s", line);
    socket_cut(fd);
}

void databases_settle(bool callbacks_worked) {
    if (db == NULL) {
        return;
    }
    bool silent = end_start();
    for (size_t i = 0; i < db->used; i++) {
        struct connection *connection = &db->list[i];
        if (connection->fd == 0) {
            continue;
        }
        if (!connections_is_same(connection)) {
            connections_forget(connection);
            continue;
        }
        const char *why = db->serves ? NULL : settle(connection);
        note_connected(connection);
        if (why != NULL) {
            resets_say_refused(connection, LOG_WARNING, "cannot stay open", why,
                "; it is closed, and requests open their own");
            resets_take_leave(connection);
            socket_cut(connection->fd);
            connections_forget(connection);
        }
    }
    if (db->serves) {
        return;
    }
    boot_descriptors_each_new(cut_unfollowed);
    uint64_t now = databases_milliseconds();
    if (!callbacks_worked && !silent) {
        databases_try_again(databases_guard_start_failed(now));
    }
    if (keeps_too_many()) {
        databases_try_again(now);
    }
    if (db->retry_at != 0) {
        db->retry_at += 2000 - databases_spread(2000); /* not all workers at once */
    }
    db->ends_at = db->kept > 0 && db->lifetime_ms > 0 ? now + databases_spread(db->lifetime_ms) : 0;
    db->serves = true;
}
