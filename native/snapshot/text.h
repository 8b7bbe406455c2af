/* Sentences for people, built without libc. Text that does not fit is cut. */
#ifndef HEARTH_SNAPSHOT_TEXT_H
#define HEARTH_SNAPSHOT_TEXT_H

#include <stddef.h>
#include <stdint.h>

struct text {
    size_t len;
    char data[512]; /* ends with a zero, always */
};

/* Borrowed: words. */
void text_add(struct text *text, const char *words);
void text_add_number(struct text *text, uint64_t number);
/* A number with 0x in front. */
void text_add_address(struct text *text, uint64_t address);

#endif
