/* The broker's own fields in the head of an answer: whether it declined the call, or the call failed. */
#ifndef HEARTH_EXT_STREAMS_BROKER_HEAD_H
#define HEARTH_EXT_STREAMS_BROKER_HEAD_H

#include <php.h>
#include <zend_smart_str.h>

enum outcome {
    ANSWERED,
    DECLINED,
    LATE,   /* no connection in time: the direct way would find the same, only later */
    FAILED, /* something had gone to the origin */
    RESET,  /* by the origin */
    LOST,   /* the broker went away without a word */
};

struct refusal {
    enum outcome outcome;
    char reason[16];
};

/* Takes the hop's own fields out of the head that begins at `begin`, and reads them. */
void broker_head_clean(smart_str *head, size_t begin, struct refusal *refusal);

#endif
