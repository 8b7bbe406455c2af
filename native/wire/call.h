/* Frames between a caller and the egress broker: the caller's side of docs/internals/egress.md, "The frame listener". Pure bytes. */
#ifndef HEARTH_WIRE_CALL_H
#define HEARTH_WIRE_CALL_H

#include "wire/frame.h"

enum {
    CALL_OPENING = 8,
    CALL_PREFIX = FRAME_HEADER + 4,
    CALL_MAX = 131072,
};

/* The first bytes of a connection. Static. */
extern const uint8_t call_opening[CALL_OPENING];

/* CALL: no body follows; one BODY follows at once. */
#define CALL_FLAG_LAST 1
#define CALL_FLAG_WHOLE 2

/* Encodes what precedes the options and the head of a CALL. False: they do not fit. */
bool call_put_prefix(uint8_t out[CALL_PREFIX], uint8_t flags, size_t control_len, size_t head_len);

struct call_answer {
    uint32_t resolved, connected, secured, first_byte; /* microseconds */
    uint8_t protocol;                                  /* HTTP version times ten */
    bool reused;
    uint16_t port;
    const char *address; /* borrowed from the payload */
    size_t address_len;
    const char *head; /* borrowed from the payload */
    size_t head_len;
};

struct call_no_answer {
    uint8_t error; /* curl's number, or 0 */
    uint16_t port;
    const char *reason; /* borrowed from the payload, as those that follow */
    size_t reason_len;
    const char *address;
    size_t address_len;
    const char *message;
    size_t message_len;
};

/* Read the payload of an ANSWER, and of a DECLINED or FAILED. Borrowed: payload, by `out` too. */
enum frame_error call_read_answer(const uint8_t *payload, size_t len, struct call_answer *out);
enum frame_error call_read_no_answer(
    const uint8_t *payload, size_t len, struct call_no_answer *out);

#endif
