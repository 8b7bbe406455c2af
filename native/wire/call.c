/* See call.h. */
#include "wire/call.h"

const uint8_t call_opening[CALL_OPENING] = {0, 'h', 'e', 'a', 'r', 't', 'h', 1};

static uint16_t get_u16(const uint8_t *p) {
    return (uint16_t)(p[0] | p[1] << 8);
}

static uint32_t get_u32(const uint8_t *p) {
    return (uint32_t)get_u16(p) | (uint32_t)get_u16(p + 2) << 16;
}

bool call_put_prefix(uint8_t out[CALL_PREFIX], uint8_t flags, size_t control_len, size_t head_len) {
    if (control_len > UINT16_MAX || head_len > CALL_MAX || 4 + control_len + head_len > CALL_MAX) {
        return false;
    }
    frame_put_header(out, FRAME_CALL, flags, (uint32_t)(4 + control_len + head_len));
    out[FRAME_HEADER] = (uint8_t)control_len;
    out[FRAME_HEADER + 1] = (uint8_t)(control_len >> 8);
    out[FRAME_HEADER + 2] = out[FRAME_HEADER + 3] = 0;
    return true;
}

enum frame_error call_read_answer(const uint8_t *payload, size_t len, struct call_answer *out) {
    enum { FIXED = 24 };
    if (len < FIXED) {
        return FRAME_BAD_PAYLOAD;
    }
    out->resolved = get_u32(payload);
    out->connected = get_u32(payload + 4);
    out->secured = get_u32(payload + 8);
    out->first_byte = get_u32(payload + 12);
    out->protocol = payload[16];
    out->reused = payload[17] == 1;
    out->port = get_u16(payload + 18);
    out->address_len = get_u16(payload + 20);
    if (payload[17] > 1 || get_u16(payload + 22) != 0 || out->address_len > len - FIXED ||
        (out->protocol != 10 && out->protocol != 11 && out->protocol != 20)) {
        return FRAME_BAD_PAYLOAD;
    }
    out->address = (const char *)payload + FIXED;
    out->head = out->address + out->address_len;
    out->head_len = len - FIXED - out->address_len;
    return FRAME_OK;
}

enum frame_error call_read_no_answer(
    const uint8_t *payload, size_t len, struct call_no_answer *out) {
    enum { FIXED = 8 };
    if (len < FIXED) {
        return FRAME_BAD_PAYLOAD;
    }
    out->error = payload[0];
    out->reason_len = get_u16(payload + 2);
    out->port = get_u16(payload + 4);
    out->address_len = get_u16(payload + 6);
    if (payload[1] != 0 || out->reason_len + out->address_len > len - FIXED) {
        return FRAME_BAD_PAYLOAD;
    }
    out->reason = (const char *)payload + FIXED;
    out->address = out->reason + out->reason_len;
    out->message = out->address + out->address_len;
    out->message_len = len - FIXED - out->reason_len - out->address_len;
    return FRAME_OK;
}
