/* See resets.h. */
#include "sapi/databases/resets.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "sapi/databases/guard.h"
#include "sapi/output/log.h"
#include "snapshot/snapshot.h"

bool resets_write_bytes(int fd, const uint8_t *bytes, size_t len) {
    return syscall(SYS_sendto, fd, bytes, len, MSG_DONTWAIT | MSG_NOSIGNAL, NULL, 0) == (long)len;
}

/* Returns whether nothing is to be read and the peer has not closed. */
static bool is_quiet(int fd) {
    struct pollfd look = {.fd = fd, .events = POLLIN | POLLRDHUP};
    return poll(&look, 1, 0) == 0;
}

const char resets_unanswered[] = "the server did not answer its reset in time";

/* Ends the process: NULL, or why this reset failed. */
static const char *read_answer(struct connection *connection, uint64_t until) {
    static const char closed[] = "the server has closed it";
    for (;;) {
        uint8_t bytes[4096];
        long got =
            syscall(SYS_recvfrom, connection->fd, bytes, sizeof bytes, MSG_DONTWAIT, NULL, NULL);
        if (got > 0) {
            enum session_verdict verdict = session_judge(&connection->session, bytes, (size_t)got);
            if (verdict == SESSION_CLEAN) {
                return NULL;
            }
            if (verdict == SESSION_WRONG) {
                return session_doubt(&connection->session);
            }
            continue;
        }
        if (got == 0 || (errno != EAGAIN && errno != EINTR)) {
            return closed;
        }
        uint64_t now = databases_milliseconds();
        struct pollfd wait = {.fd = connection->fd, .events = POLLIN};
        if (now >= until) {
            return resets_unanswered;
        }
        poll(&wait, 1, (int)(until - now));
    }
}

const char *resets_write(struct connection *connection) {
    uint8_t random[SESSION_NONCE / 2];
    uint8_t nonce[SESSION_NONCE];
    uint8_t reset[SESSION_RESET];
    const char *doubt = session_doubt(&connection->session);
    if (doubt != NULL) {
        return doubt;
    }
    if (!connections_is_same(connection)) {
        return "the request closed or replaced it";
    }
    if (!is_quiet(connection->fd)) {
        return "the server has closed it, or sent something that was not read";
    }
    databases_draw(random, sizeof random);
    for (size_t i = 0; i < sizeof nonce; i++) {
        nonce[i] = (uint8_t) "0123456789abcdef"[random[i / 2] >> (i % 2 * 4) & 15];
    }
    size_t len = session_write_reset(&connection->session, nonce, reset);
    if (len == 0) {
        return session_doubt(&connection->session);
    }
    bool written = resets_write_bytes(connection->fd, reset, len);
    explicit_bzero(reset, len);
    connection->awaited = written;
    return written ? NULL : "its socket did not take the reset";
}

const char *resets_finish(struct connection *connection) {
    const char *why = read_answer(connection, databases_milliseconds() + db->answer_ms);
    connection->awaited = false;
    connection->last_word = databases_milliseconds();
    return why;
}

/* --- log lines
 *
 * ------------------------------------------------------------------------------------------------------------------ */

void resets_tell(struct connection *connection, enum connection_state state, const char *why) {
    struct connection_counters *places = shared_counters_connections();
    if (connection->place == NULL && places != NULL && db->places < COUNTED_CONNECTIONS) {
        connection->place = &places[db->places++];
        /* all its pages are touched before the snapshot */
        memset(connection->place, 0, sizeof *connection->place);
    }
    if (connection->place == NULL) {
        return;
    }
    snprintf(connection->place->protocol, sizeof connection->place->protocol, "%s",
        session_protocol_name(session_protocol(&connection->session)));
    snprintf(connection->place->server, sizeof connection->place->server, "%s", connection->peer);
    snprintf(connection->place->why, sizeof connection->place->why, "%s", why);
    connection->place->state = state;
}

void resets_say_refused(
    struct connection *connection, int level, const char *what, const char *why, const char *end) {
    char line[512];
    snprintf(line, sizeof line, "%s (%s) %s: %s%s", connection->peer,
        session_protocol_name(session_protocol(&connection->session)), what, why, end);
    log_line(databases_guard_is_news(line) ? level : LOG_DEBUG, LOG_SOURCE_WORKER, "%s", line);
}

/* --- ending ------------------------------------------------------------------------------------------------------------------------------ */

static const char *protocol_of(const struct connection *connection) {
    return session_protocol_name(session_protocol(&connection->session));
}

void resets_say_goodbyes(void) {
    for (size_t i = 0; i < db->used; i++) {
        uint8_t goodbye[SESSION_GOODBYE];
        struct connection *connection = &db->list[i];
        if (connection->fd != 0 && connection->kept && connections_is_same(connection)) {
            size_t len = session_write_goodbye(&connection->session, goodbye);
            resets_write_bytes(connection->fd, goodbye, len);
        }
    }
}

_Noreturn void resets_retire(struct connection *connection, const char *why) {
    if (connection->resets < LASTING) {
        databases_guard_failed(connection->server, databases_milliseconds());
    }
    if (why == resets_unanswered) {
        databases_guard_suspected(connection->server);
    }
    resets_tell(connection, CONNECTION_FAILED, why);
    session_spoil(&connection->session, why);
    resets_say_goodbyes();
    log_line(LOG_NOTICE, LOG_SOURCE_WORKER, "%s (%s): %s", connection->peer,
        protocol_of(connection), why);
    fflush(NULL);
    _exit(SNAPSHOT_EXIT_RETIRED);
}

_Noreturn void resets_leave(int level, const char *why) {
    resets_say_goodbyes();
    shared_counters_tell_leaving();
    log_line(level, LOG_SOURCE_WORKER, "%s", why);
    fflush(NULL);
    _exit(SNAPSHOT_EXIT_RETIRED);
}

void resets_take_leave(struct connection *connection) {
    uint8_t goodbye[SESSION_GOODBYE];
    size_t len = session_write_goodbye(&connection->session, goodbye);
    if (len > 0) {
        db->goodbyes += resets_write_bytes(connection->fd, goodbye, len);
    }
}
