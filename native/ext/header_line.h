/* A response header line as PHP keeps it, `Name: value`, taken apart. */
#ifndef HEARTH_EXT_HEADER_LINE_H
#define HEARTH_EXT_HEADER_LINE_H

#include <SAPI.h>
#include <stdbool.h>
#include <string.h>

struct header_line {
    const char *name;  /* borrowed from the line */
    size_t name_len;   /* blanks before the colon are not counted */
    const char *value; /* borrowed from the line; blanks before it are left out */
    size_t value_len;
};

/* False for a line without a colon or that begins with one. Borrowed: header. */
static inline bool header_line_split(const sapi_header_struct *header, struct header_line *out) {
    const char *colon = memchr(header->header, ':', header->header_len);
    if (colon == NULL || colon == header->header) {
        return false;
    }
    const char *end = header->header + header->header_len;
    const char *value = colon + 1;
    while (value < end && (*value == ' ' || *value == '\t')) {
        value++;
    }
    const char *name_end = colon;
    while (name_end > header->header && (name_end[-1] == ' ' || name_end[-1] == '\t')) {
        name_end--;
    }
    *out = (struct header_line){
        header->header, (size_t)(name_end - header->header), value, (size_t)(end - value)};
    return true;
}

#endif
