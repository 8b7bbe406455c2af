/* See broker_head.h. */
#include "ext/streams/broker_head.h"

#include <string.h>
#include <strings.h>

/* `Hearth-Declined: REASON; errno=N; …` */
static void read_refusal(struct refusal *refusal, const char *line, const char *end) {
    bool declined = strncasecmp(line, "Hearth-Declined:", 16) == 0;
    if (!declined && strncasecmp(line, "Hearth-Failed:", 14) != 0) {
        return;
    }
    const char *reason = memchr(line, ':', (size_t)(end - line));
    do {
        reason++;
    } while (*reason == ' ');
    size_t len = strcspn(reason, "; \r\n");
    if (len >= sizeof refusal->reason) {
        len = sizeof refusal->reason - 1;
    }
    /* the head does not end with a NUL, which PHP's snprintf() looks for even if it gets a
     * length */
    memcpy(refusal->reason, reason, len);
    refusal->reason[len] = '\0';
    static const char late[] = "errno=28;";
    if (!declined) {
        refusal->outcome = strcmp(refusal->reason, "reset") == 0 ? RESET : FAILED;
    } else if (strcmp(refusal->reason, "queue") != 0 &&
               memmem(line, (size_t)(end - line), late, sizeof late - 1) != NULL) {
        refusal->outcome = LATE;
    } else {
        refusal->outcome = DECLINED;
    }
}

void broker_head_clean(smart_str *head, size_t begin, struct refusal *refusal) {
    static const char connection[] = "Connection: close\r\n";
    char *to = ZSTR_VAL(head->s) + begin;
    const char *end = ZSTR_VAL(head->s) + ZSTR_LEN(head->s);
    for (const char *line = to; line < end;) {
        const char *next = (const char *)memchr(line, '\n', (size_t)(end - line)) + 1;
        if (next - line > 7 && strncasecmp(line, "Hearth-", 7) == 0) {
            read_refusal(refusal, line, next);
        } else {
            memmove(to, line, (size_t)(next - line));
            if (strncasecmp(to, connection, sizeof connection - 1) == 0) {
                memcpy(to, connection, sizeof connection - 1); /* as origins write it */
            }
            to += next - line;
        }
        line = next;
    }
    ZSTR_LEN(head->s) = (size_t)(to - ZSTR_VAL(head->s));
}
