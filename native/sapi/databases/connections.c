/* See connections.h. */
#include "sapi/databases/connections.h"

#include <errno.h>
#include <netinet/in.h>
#include <pthread.h>
#include <stddef.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "ext/curl/settings.h"
#include "sapi/boot/boot_descriptors.h"
#include "sapi/databases/guard.h"
#include "sapi/databases/opening.h"
#include "sapi/databases/places.h"
#include "snapshot/snapshot.h"

struct connection *connections_of(int fd) {
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

bool connections_is_same(const struct connection *connection) {
    uint64_t device, inode;
    return identify(connection->fd, &device, &inode) && device == connection->device &&
           inode == connection->inode;
}

void connections_give_place_back(struct connection *connection) {
    if (connection->place_fd != 0) {
        close(connection->place_fd);
        connection->place_fd = 0;
    }
}

void connections_forget(struct connection *connection) {
    db->of_descriptor[connection->fd] = 0;
    db->shim.followed[connection->fd] = false;
    if (connection->kept && connection->place != NULL) {
        connection->place->state = 0;
    }
    db->kept -= connection->kept;
    if (connection->refused) {
        places_missed(connection->connector);
    }
    connection->kept = connection->awaited = connection->refused = false;
    connection->fd = 0;
    session_end(&connection->session);
    connections_give_place_back(connection);
}

/* Connections that had no place and were closed since, so that the next one is counted beside
 * them. It usually gets the same descriptor. */
static void forget_refused(void) {
    for (size_t i = 0; i < db->used; i++) {
        struct connection *connection = &db->list[i];
        if (connection->fd != 0 && connection->refused && !connections_is_same(connection)) {
            connections_forget(connection);
        }
    }
}

static struct connection *free_place(void) {
    for (size_t i = 0; i < db->used; i++) {
        struct connection *connection = &db->list[i];
        if (connection->fd != 0 && !connection->kept && !connections_is_same(connection)) {
            connections_forget(connection); /* closed since */
        }
        if (connection->fd == 0) {
            return connection;
        }
    }
    return db->used < CONNECTIONS ? &db->list[db->used++] : NULL;
}

/* The servers of two addresses are the same if this number is. */
static uint64_t name_server(const struct sockaddr *address, socklen_t len) {
    const uint8_t *bytes = (const uint8_t *)address;
    if (address->sa_family == AF_INET && len > offsetof(struct sockaddr_in, sin_zero)) {
        len = offsetof(struct sockaddr_in, sin_zero);
    }
    uint64_t hash = 0xcbf29ce484222325; /* FNV-1a */
    for (socklen_t i = 0; i < len; i++) {
        hash = (hash ^ bytes[i]) * 0x100000001b3;
    }
    hash ^= hash >> 32;
    return hash | (hash == 0);
}

bool connections_is_broker(const struct sockaddr *address, socklen_t len) {
    const struct sockaddr_un *local = (const struct sockaddr_un *)(const void *)address;
    const char *broker = settings_broker();
    size_t room = len > offsetof(struct sockaddr_un, sun_path) && len <= sizeof *local
                      ? len - offsetof(struct sockaddr_un, sun_path)
                      : 0;
    return broker != NULL && address->sa_family == AF_UNIX && room > 0 &&
           strlen(broker) == strnlen(local->sun_path, room) &&
           memcmp(local->sun_path, broker, strlen(broker)) == 0;
}

/* Returns how many connections to it are open. */
static size_t count_of(int connector) {
    size_t count = 0;
    for (size_t i = 0; i < db->used; i++) {
        const struct connection *connection = &db->list[i];
        count += connection->fd != 0 && connection->connector == connector &&
                 connections_is_same(connection);
    }
    return count;
}

static bool connecting(int fd, const struct sockaddr **to, socklen_t *to_len) {
    /* to people, and for the guard, it is what PHP called it */
    const struct sockaddr *address = *to;
    socklen_t len = *to_len;
    int type;
    socklen_t type_len = sizeof type;
    forget_refused();
    struct connection *connection = connections_of(fd);
    if (connection != NULL && connection->kept && !db->serves && !connections_is_same(connection)) {
        connections_forget(connection); /* a later callback closed it, and this is another */
        connection = NULL;
    }
    if (connection != NULL && connection->kept) {
        /* connections_is_same() will check that it is still the same socket */
        session_spoil(&connection->session, "the request connected it again");
        return true;
    }
    if (getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &type_len) != 0 || type != SOCK_STREAM) {
        return true;
    }
    if (connections_is_broker(address, len)) {
        if (connection != NULL) {
            connections_forget(connection);
        }
        return true;
    }
    places_lead_home(to, to_len);
    uint64_t server = name_server(address, len);
    if (db->starting && !opening_allows(fd, server, address, len)) {
        return false;
    }
    if (connection == NULL) {
        connection = free_place();
    }
    if (connection == NULL || !identify(fd, &connection->device, &connection->inode)) {
        return true;
    }
    connection->fd = fd;
    connection->refused = connection->awaited = connection->heard = connection->judged = false;
    connection->resets = 0;
    connection->server = server;
    connection->connector = PLACES_UNCOUNTED;
    if (!db->serves) {
        connection->connector = places_find(*to, *to_len);
        socket_name_address(address, len, connection->peer, sizeof connection->peer);
    }
    connection->place = NULL;
    db->of_descriptor[fd] = (uint8_t)(connection - db->list + 1);
    session_begin(&connection->session, !db->serves);
    db->shim.followed[fd] = true;
    if (connection->connector != PLACES_UNCOUNTED) {
        places_want(connection->connector, count_of(connection->connector));
    }
    return true;
}

/* Returns whether the server has answered in its protocol. A connection accepted by a kernel or a
 * balancer may have no server behind it yet, and neither may a login that a proxy has answered. */
static bool is_answered(const struct connection *connection) {
    switch (session_protocol(&connection->session)) {
    case SESSION_UNKNOWN:
        return false;
    case SESSION_FOREIGN:
        return true;
    case SESSION_TLS:
        return connection->heard;
    default:
        return session_is_served(&connection->session);
    }
}

void connections_note_answer(struct connection *connection) {
    connection->judged = true;
    databases_guard_answered(connection->server);
    if (db->starting && opening_awaits(connection->fd)) {
        opening_answered();
    }
}

static void look_for_answer(struct connection *connection) {
    if (!connection->judged && is_answered(connection)) {
        connections_note_answer(connection);
    }
}

static void refused(int fd) {
    struct connection *connection = connections_of(fd);
    if (connection != NULL && !connection->kept) {
        connections_note_answer(connection);
    }
}

static void sent(int fd, const void *bytes, size_t len) {
    struct connection *connection = connections_of(fd);
    if (connection != NULL) {
        session_sent(&connection->session, bytes, len);
        look_for_answer(connection);
    }
}

static void received(int fd, const void *bytes, size_t len) {
    struct connection *connection = connections_of(fd);
    if (connection != NULL) {
        connection->heard = true;
        session_received(&connection->session, bytes, len);
        look_for_answer(connection);
    }
}

static void shared(int fd, const char *how) {
    struct connection *connection = connections_of(fd);
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

/* Called in a child that PHP code has forked: the connections and the places belong to its parent,
 * and the places would stay taken while it lives. */
static void leave_to_parent(void) {
    libc_shim_open(NULL);
    if (db == NULL) {
        return;
    }
    for (size_t i = 0; i < db->used; i++) {
        if (db->list[i].fd != 0 && db->list[i].kept) {
            socket_cut(db->list[i].fd);
        }
        connections_give_place_back(&db->list[i]);
    }
    snapshot_leave_to_parent();
    db->kept = 0;
}

void connections_follow(void) {
    db->shim.connecting = connecting;
    db->shim.refused = refused;
    db->shim.sent = sent;
    db->shim.received = received;
    db->shim.shared = shared;
    db->shim.passed = passed;
    pthread_atfork(NULL, NULL, leave_to_parent);
    libc_shim_open(&db->shim);
}
