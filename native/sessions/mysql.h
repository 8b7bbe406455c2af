/* Names and numbers of MySQL's protocol, for mysql.c, which observes a session, and mysql_reset.c, which resets it. */
#ifndef HEARTH_SESSIONS_MYSQL_H
#define HEARTH_SESSIONS_MYSQL_H

#include "sessions/internal.h"

enum { HEADER = 4, MOST = 0xffffff };

/* Capabilities of the client, in its handshake response. */
enum {
    CLIENT_WITH_DB = 1 << 3,
    CLIENT_COMPRESS = 1 << 5,
    CLIENT_IGNORE_SPACE = 1 << 8,
    CLIENT_PROTOCOL_41 = 1 << 9,
    CLIENT_INTERACTIVE = 1 << 10,
    CLIENT_SSL = 1 << 11,
    CLIENT_SECURE_CONNECTION = 1 << 15,
    CLIENT_MULTI_STATEMENTS = 1 << 16,
    CLIENT_LENENC_AUTH = 1 << 21,
    CLIENT_DEPRECATE_EOF = 1 << 24,
    CLIENT_ZSTD = 1 << 26,
};

enum {
    STATUS_IN_TRANSACTION = 1,
    STATUS_MORE_RESULTS = 8,
    STATUS_CURSOR = 0x40,
};

enum {
    COM_QUIT = 0x01,
    COM_INIT_DB = 0x02,
    COM_QUERY = 0x03,
    COM_FIELD_LIST = 0x04,
    COM_STATISTICS = 0x09,
    COM_PING = 0x0e,
    COM_CHANGE_USER = 0x11,
    COM_STMT_PREPARE = 0x16,
    COM_STMT_EXECUTE = 0x17,
    COM_STMT_SEND_LONG_DATA = 0x18,
    COM_STMT_CLOSE = 0x19,
    COM_STMT_RESET = 0x1a,
    COM_SET_OPTION = 0x1b,
    COM_STMT_FETCH = 0x1c,
    COM_RESET_CONNECTION = 0x1f,
};

/* The proofs of the first reset, counted down: the state without the initialisation, the state after it, and the proof that later ones must
 * equal. */
enum { PROBE_EXPECTED = 1, PROBE_AFTER, PROBE_BEFORE };

static inline uint32_t measure(const uint8_t *header) {
    return (uint32_t)header[0] | (uint32_t)header[1] << 8 | (uint32_t)header[2] << 16;
}

static inline uint16_t two(const uint8_t *bytes) {
    return (uint16_t)(bytes[0] | bytes[1] << 8);
}

/* A length-encoded number at *at, which moves behind it. */
static inline uint64_t number(const uint8_t **at, const uint8_t *end) {
    if (*at == end) {
        return 0;
    }
    uint8_t first = *(*at)++;
    int bytes = first == 0xfc ? 2 : first == 0xfd ? 3 : first == 0xfe ? 8 : 0;
    if (bytes == 0) {
        return first;
    }
    uint64_t value = 0;
    for (int i = 0; i < bytes && *at < end; i++) {
        value |= (uint64_t) * (*at)++ << (8 * i);
    }
    return value;
}

/* As in struct dialect. */
const char *mysql_learn(struct session *session, struct growing *init);
void mysql_reset(struct session *session, struct growing *to);
void mysql_question(struct session *session, struct growing *to);
const char *mysql_unproven(struct session *session);

#endif
