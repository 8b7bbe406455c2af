/* See databases.h. */
#include "databases.h"

#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "board.h"
#include "boot_descriptors.h"
#include "channel.h"
#include "databases_guard.h"
#include "log.h"
#include "options.h"
#include "sessions/session.h"
#include "snapshot/snapshot.h"
#include "tap.h"

enum {
    CONNECTIONS =
        64, /* followed at once; of more nothing is known, and they are closed without a goodbye */
    KEPT = 16,    /* more are cut like those that cannot be kept */
    LASTING = 16, /* good resets after which a connection was worth keeping */
    KEEPALIVE_S = 60,
    PAGE = 4096,
};

struct connection {
    int fd; /* 0: free */
    bool kept, awaited;
    uint64_t device, inode; /* of the socket: a number alone may be another connection by now */
    uint64_t server;        /* which one, for the guard */
    uint64_t last_word;     /* when the server last proved that it is there */
    uint64_t resets;
    uint64_t sent_at;               /* of the reset under way; nanoseconds */
    struct board_connection *place; /* NULL: the board has none for it */
    char peer[144];
    struct session session;
};

/* Memory of its own: nothing here is put back. */
static struct databases {
    struct tap tap;
    bool serves; /* the snapshot was taken */
    bool keep;
    uint64_t idle_ms, lifetime_ms, answer_ms;
    uint64_t ends_at, retry_at; /* clock; 0: never */
    uint64_t resets, reset_ns, goodbyes;
    size_t places; /* of the board, in use */
    size_t kept;
    size_t used; /* places of `list` that ever were: the others' pages are not touched */
    uint8_t of_descriptor[TAP_DESCRIPTORS]; /* place in `list`, plus one */
    struct connection list[CONNECTIONS];
} * db;

static uint64_t nanoseconds(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
}

static uint64_t milliseconds(void) {
    return nanoseconds() / 1000000;
}

static void draw(void *to, size_t len) {
    if (getrandom(to, len, 0) != (ssize_t)len) {
        log_line(LOG_CRIT, LOG_SOURCE_WORKER, "the kernel has no random numbers");
        _exit(SNAPSHOT_EXIT_RETIRED);
    }
}

/* Between nine tenths and the whole, so that workers do not do the same at the same time. */
static uint64_t spread(uint64_t duration) {
    uint32_t random;
    draw(&random, sizeof random);
    return duration - duration / 10 * (random % 1024) / 1024;
}

/* --- following --------------------------------------------------------------------------------------------------------------------------- */

static struct connection *connection_of(int fd) {
    uint8_t place = db->of_descriptor[fd];
    return place != 0 ? &db->list[place - 1] : NULL;
}

static bool identify(int fd, uint64_t *device, uint64_t *inode) {
    struct stat status;
    if (fstat(fd, &status) != 0) {
        return false;
    }
    *device = status.st_dev;
    *inode = status.st_ino;
    return true;
}

static bool is_same(const struct connection *connection) {
    uint64_t device, inode;
    return identify(connection->fd, &device, &inode) && device == connection->device &&
           inode == connection->inode;
}

static void forget(struct connection *connection) {
    db->of_descriptor[connection->fd] = 0;
    db->tap.followed[connection->fd] = false;
    db->kept -= connection->kept;
    connection->kept = connection->awaited = false;
    connection->fd = 0;
}

static struct connection *free_place(void) {
    for (size_t i = 0; i < db->used; i++) {
        struct connection *connection = &db->list[i];
        if (connection->fd != 0 && !connection->kept && !is_same(connection)) {
            forget(connection); /* closed since */
        }
        if (connection->fd == 0) {
            return connection;
        }
    }
    return db->used < CONNECTIONS ? &db->list[db->used++] : NULL;
}

static void connecting(int fd) {
    int type;
    socklen_t len = sizeof type;
    struct connection *connection = connection_of(fd);
    if (connection != NULL && connection->kept) {
        /* is_same() will tell whether it is still that socket */
        session_spoil(&connection->session, "the request connected it anew");
        return;
    }
    if (getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &len) != 0 || type != SOCK_STREAM) {
        return;
    }
    if (connection == NULL) {
        connection = free_place();
    }
    if (connection == NULL || !identify(fd, &connection->device, &connection->inode)) {
        return;
    }
    connection->fd = fd;
    connection->awaited = false;
    connection->resets = 0;
    connection->place = NULL;
    db->of_descriptor[fd] = (uint8_t)(connection - db->list + 1);
    session_begin(&connection->session, !db->serves);
    db->tap.followed[fd] = true;
}

static void sent(int fd, const void *bytes, size_t len) {
    struct connection *connection = connection_of(fd);
    if (connection != NULL) {
        session_sent(&connection->session, bytes, len);
    }
}

static void received(int fd, const void *bytes, size_t len) {
    struct connection *connection = connection_of(fd);
    if (connection != NULL) {
        session_received(&connection->session, bytes, len);
    }
}

static void shared(int fd, const char *how) {
    struct connection *connection = connection_of(fd);
    if (connection != NULL && connection->kept) {
        session_spoil(&connection->session, how);
    }
}

static void passed(void) {
    for (size_t i = 0; i < db->used; i++) {
        if (db->list[i].fd != 0 && db->list[i].kept) {
            session_spoil(
                &db->list[i].session, "the request passed descriptors to another process");
        }
    }
}

/* In a child that PHP code has forked: the conversations are its parent's. */
static void leave_to_parent(void) {
    tap_open(NULL);
    for (size_t i = 0; i < db->used; i++) {
        if (db->list[i].fd != 0 && db->list[i].kept) {
            socket_cut(db->list[i].fd);
        }
    }
    db->kept = 0;
}

/* HEARTH_DATABASES is four numbers: whether to keep connections at all, and in milliseconds how long one may be idle before the server is asked
 * whether it is there, how long it may live (both 0: for ever), how long the answer to a reset may take. */
static void read_settings(void) {
    const char *text = getenv("HEARTH_DATABASES");
    unsigned long keep = 1, idle = 30000, lifetime = 3600000, answer = 1000;
    if (text != NULL) {
        sscanf(text, "%lu %lu %lu %lu", &keep, &idle, &lifetime, &answer);
    }
    db->keep = keep != 0;
    db->idle_ms = idle;
    db->lifetime_ms = lifetime;
    db->answer_ms = answer;
}

void databases_open(bool keeps) {
    if (!tap_works()) {
        return;
    }
    size_t len = (sizeof *db + 2 * PAGE) & ~(size_t)(PAGE - 1);
    db = snapshot_keep(len);
    /* the whole pages of it; at its ends lie numbers only */
    uintptr_t start = ((uintptr_t)db->list + PAGE - 1) & ~(uintptr_t)(PAGE - 1);
    uintptr_t end = ((uintptr_t)(db->list + CONNECTIONS) + PAGE) & ~(uintptr_t)(PAGE - 1);
    madvise((void *)(start - PAGE), end - start + PAGE, MADV_DONTDUMP);
    if (keeps) {
        /* pages that requests will use are there before the snapshot: no fault of theirs has to be explained */
        memset(db->list, 0, 8 * sizeof *db->list);
    }
    read_settings();
    db->serves = !keeps;
    db->tap.connecting = connecting;
    db->tap.sent = sent;
    db->tap.received = received;
    db->tap.shared = shared;
    db->tap.passed = passed;
    pthread_atfork(NULL, NULL, leave_to_parent);
    tap_open(&db->tap);
}

/* --- input and output, behind the tap ------------------------------------------------------------------------------------------------------ */

/* False: the socket did not take it at once. Then nobody knows what the server will make of the rest. */
static bool write_all(int fd, const uint8_t *bytes, size_t len) {
    return syscall(SYS_sendto, fd, bytes, len, MSG_DONTWAIT | MSG_NOSIGNAL, NULL, 0) == (long)len;
}

/* Nothing to read, and the other end is there. */
static bool is_quiet(int fd) {
    struct pollfd look = {.fd = fd, .events = POLLIN | POLLRDHUP};
    return poll(&look, 1, 0) == 0;
}

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
        uint64_t now = milliseconds();
        struct pollfd wait = {.fd = connection->fd, .events = POLLIN};
        if (now >= until) {
            return "the server did not answer its reset in time";
        }
        poll(&wait, 1, (int)(until - now));
    }
}

/* NULL: the reset is on its way. */
static const char *write_reset(struct connection *connection) {
    uint8_t random[SESSION_NONCE / 2];
    uint8_t nonce[SESSION_NONCE];
    uint8_t reset[SESSION_RESET];
    const char *doubt = session_doubt(&connection->session);
    if (doubt != NULL) {
        return doubt;
    }
    if (!is_same(connection)) {
        return "the request closed or replaced it";
    }
    if (!is_quiet(connection->fd)) {
        return "the server has closed it, or said what nobody read";
    }
    draw(random, sizeof random);
    for (size_t i = 0; i < sizeof nonce; i++) {
        nonce[i] = (uint8_t) "0123456789abcdef"[random[i / 2] >> (i % 2 * 4) & 15];
    }
    size_t len = session_write_reset(&connection->session, nonce, reset);
    if (len == 0) {
        return session_doubt(&connection->session);
    }
    bool written = write_all(connection->fd, reset, len);
    explicit_bzero(reset, len);
    connection->awaited = written;
    return written ? NULL : "its socket did not take the reset";
}

/* NULL: the server's session is what its client remembers. */
static const char *finish_reset(struct connection *connection) {
    const char *why = read_answer(connection, milliseconds() + db->answer_ms);
    connection->awaited = false;
    connection->last_word = milliseconds();
    return why;
}

/* --- what others are told ------------------------------------------------------------------------------------------------------------------ */

/* On the board, for the status. `why` it is not kept any more. */
static void tell_state(
    struct connection *connection, enum board_connection_state state, const char *why) {
    struct board_connection *places = board_connections();
    if (connection->place == NULL && places != NULL && db->places < BOARD_CONNECTIONS) {
        connection->place = &places[db->places++];
        /* all its pages are there before the snapshot */
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

/* A connection that is not kept: the first worker that finds out says it, and its successors would only repeat it. */
static void say_refused(
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

/* To the servers whose connections are kept, and as they should be. */
static void say_goodbyes(void) {
    for (size_t i = 0; i < db->used; i++) {
        uint8_t goodbye[SESSION_GOODBYE];
        struct connection *connection = &db->list[i];
        if (connection->fd != 0 && connection->kept && is_same(connection)) {
            size_t len = session_write_goodbye(&connection->session, goodbye);
            write_all(connection->fd, goodbye, len);
        }
    }
}

/* Only while no request is under way: whatever the server has written ahead goes to another worker. */
static _Noreturn void retire(struct connection *connection, const char *why) {
    if (connection->resets < LASTING) {
        databases_guard_failed(connection->server, milliseconds());
    }
    tell_state(connection, BOARD_FAILED, why);
    session_spoil(&connection->session, why);
    say_goodbyes();
    log_line(LOG_NOTICE, LOG_SOURCE_WORKER, "%s (%s): %s", connection->peer,
        protocol_of(connection), why);
    fflush(NULL);
    _exit(SNAPSHOT_EXIT_RETIRED);
}

static _Noreturn void leave(int level, const char *why) {
    say_goodbyes();
    board_tell_leaving();
    log_line(level, LOG_SOURCE_WORKER, "%s", why);
    fflush(NULL);
    _exit(SNAPSHOT_EXIT_RETIRED);
}

static void take_leave(struct connection *connection) {
    uint8_t goodbye[SESSION_GOODBYE];
    size_t len = session_write_goodbye(&connection->session, goodbye);
    if (len > 0) {
        db->goodbyes += write_all(connection->fd, goodbye, len);
    }
}

/* --- before the snapshot ------------------------------------------------------------------------------------------------------------------ */

static uint64_t name_server(int fd) {
    struct sockaddr_storage address;
    socklen_t len = sizeof address;
    memset(&address, 0, sizeof address);
    if (getpeername(fd, (struct sockaddr *)&address, &len) != 0) {
        return 0;
    }
    uint64_t hash = 0xcbf29ce484222325; /* FNV-1a */
    for (socklen_t i = 0; i < len && i < sizeof address; i++) {
        hash = (hash ^ ((const uint8_t *)&address)[i]) * 0x100000001b3;
    }
    return hash ^ hash >> 32;
}

static void keep_alive(int fd) {
    int on = 1, after = KEEPALIVE_S;
    fcntl(fd, F_SETFD, FD_CLOEXEC);
    setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &after, sizeof after); /* fails on unix sockets */
}

/* NULL: the server's answer is the one that is expected. */
static const char *ask(struct connection *connection) {
    uint8_t question[SESSION_RESET];
    size_t len = session_write_question(&connection->session, question);
    if (len == 0) {
        return session_doubt(&connection->session);
    }
    return write_all(connection->fd, question, len) ? finish_reset(connection)
                                                    : "its socket did not take a question";
}

/* NULL: it is kept. A reset now is the proof that this server can be put back, and requests find what it leaves. */
static const char *try_to_keep(struct connection *connection) {
    connection->server = name_server(connection->fd);
    socket_name_peer(connection->fd, connection->peer, sizeof connection->peer);
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
    uint64_t now = milliseconds();
    uint64_t until = databases_guard_until(connection->server, now);
    if (until != 0) {
        db->retry_at = until + 1;
        return "it did not last in the workers before; tried again later";
    }
    keep_alive(connection->fd);
    why = ask(connection);
    why = why == NULL ? write_reset(connection) : why;
    why = why == NULL ? finish_reset(connection) : why;
    why = why == NULL ? ask(connection) : why;
    if (why == NULL) {
        connection->kept = true;
        db->kept++;
        tell_state(connection, BOARD_KEPT, "");
    }
    return why;
}

static bool is_of_database(const struct connection *connection) {
    enum session_protocol protocol = session_protocol(&connection->session);
    return protocol == SESSION_MYSQL || protocol == SESSION_POSTGRES || protocol == SESSION_REDIS ||
           protocol == SESSION_TLS;
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
        tell_state(connection, BOARD_REFUSED, why);
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
        if (connection->fd == 0 || !is_same(connection) || !is_of_database(connection)) {
            continue;
        }
        const char *why = settle(connection);
        if (why != NULL) {
            all = false;
            say_refused(connection, LOG_NOTICE, "is not kept", why, "");
        }
    }
    return all && db->kept > 0;
}

void databases_settle(bool callbacks_worked) {
    if (db == NULL || db->serves) {
        return;
    }
    for (size_t i = 0; i < db->used; i++) {
        struct connection *connection = &db->list[i];
        if (connection->fd == 0) {
            continue;
        }
        if (!is_same(connection)) {
            forget(connection);
        } else if (is_of_database(connection)) {
            const char *why = settle(connection);
            if (why != NULL) {
                say_refused(connection, LOG_WARNING, "cannot stay open", why,
                    "; it is closed, and requests open their own");
                take_leave(connection);
                socket_cut(connection->fd);
                forget(connection);
            }
        } else {
            forget(connection);
        }
    }
    uint64_t now = milliseconds();
    if (!callbacks_worked) {
        db->retry_at = databases_guard_start_failed(now);
    }
    if (db->retry_at != 0) {
        db->retry_at += 2000 - spread(2000); /* not all workers at once */
    }
    db->ends_at = db->kept > 0 && db->lifetime_ms > 0 ? now + spread(db->lifetime_ms) : 0;
    db->serves = true;
}

/* --- between requests ---------------------------------------------------------------------------------------------------------------------- */

void databases_await(void) {
    if (db == NULL || db->kept == 0) {
        return;
    }
    for (size_t i = 0; i < db->used; i++) {
        struct connection *connection = &db->list[i];
        if (connection->fd == 0 || !connection->awaited) {
            continue;
        }
        const char *why = finish_reset(connection);
        if (why != NULL) {
            retire(connection, why);
        }
        if (++connection->resets == LASTING) {
            databases_guard_lasted(connection->server);
        }
        uint64_t took = nanoseconds() - connection->sent_at;
        db->resets++;
        db->reset_ns += took;
        if (connection->place != NULL) {
            board_count_reset(connection->place, took);
        }
    }
}

/* Asks the servers that have not been heard of for long. */
static void ask_the_idle(uint64_t now) {
    for (size_t i = 0; i < db->used; i++) {
        struct connection *connection = &db->list[i];
        if (connection->fd == 0 || !connection->kept || now < connection->last_word + db->idle_ms) {
            continue;
        }
        const char *why = write_reset(connection);
        if (why == NULL) {
            why = finish_reset(connection);
        }
        if (why != NULL) {
            retire(connection, why);
        }
    }
}

static uint64_t earlier(uint64_t first, uint64_t second) {
    return second != 0 && (first == 0 || second < first) ? second : first;
}

static void end_in_time(uint64_t now) {
    if (db->ends_at != 0 && now >= db->ends_at) {
        leave(
            LOG_NOTICE, "connections of databases have lived long enough (databases.max_lifetime)");
    }
    if (db->retry_at != 0 && now >= db->retry_at) {
        leave(LOG_DEBUG, "connections of databases are tried again");
    }
}

void databases_wait(void) {
    if (db == NULL || (db->kept == 0 && db->retry_at == 0)) {
        return;
    }
    for (;;) {
        struct pollfd wait[1 + KEPT] = {{.fd = channel_descriptor(), .events = POLLIN}};
        struct connection *of[1 + KEPT];
        nfds_t count = 1;
        uint64_t due = earlier(db->ends_at, db->retry_at);
        for (size_t i = 0; i < db->used && count <= db->kept; i++) {
            struct connection *connection = &db->list[i];
            if (connection->fd != 0 && connection->kept) {
                of[count] = connection;
                wait[count++] = (struct pollfd){.fd = connection->fd, .events = POLLIN | POLLRDHUP};
                if (db->idle_ms > 0) {
                    due = earlier(due, connection->last_word + db->idle_ms);
                }
            }
        }
        int timeout = -1;
        if (channel_has_input()) {
            timeout = 0;
        } else if (due != 0) {
            uint64_t now = milliseconds();
            uint64_t left = due > now ? due - now : 0;
            timeout = left < 3600000 ? (int)left : 3600000;
        }
        int ready = poll(wait, count, timeout);
        if (ready < 0 && errno == EINTR) {
            continue;
        }
        for (nfds_t i = 1; i < count; i++) {
            if (wait[i].revents != 0) {
                retire(of[i], "the server has closed it, or spoke unasked");
            }
        }
        if (channel_has_input() || wait[0].revents != 0) {
            return;
        }
        uint64_t now = milliseconds();
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
            if (is_same(connection)) {
                take_leave(connection);
            }
            forget(connection);
            continue;
        }
        if (!session_is_used(&connection->session) && session_doubt(&connection->session) == NULL) {
            continue;
        }
        connection->sent_at = nanoseconds();
        const char *why = write_reset(connection);
        if (why != NULL) {
            retire(connection, why);
        }
    }
    if (db->ends_at != 0 || db->retry_at != 0) {
        end_in_time(milliseconds());
    }
}

void databases_close(void) {
    if (db != NULL) {
        say_goodbyes();
    }
}

void databases_say_statistics(void) {
    if (db != NULL && db->kept > 0 && getenv("HEARTH_SNAPSHOT_STATISTICS") != NULL) {
        fprintf(stderr,
            "databases: %zu kept, %lu resets, mean %lu ns from writing to proof; %lu goodbyes\n",
            db->kept, db->resets, db->resets > 0 ? db->reset_ns / db->resets : 0, db->goodbyes);
    }
}
