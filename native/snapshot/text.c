#include "snapshot/text.h"

void text_add(struct text *text, const char *words) {
    while (*words != 0 && text->len + 1 < sizeof text->data) {
        text->data[text->len++] = *words++;
    }
    text->data[text->len] = 0;
}

static void add_digits(struct text *text, uint64_t number, unsigned base) {
    char digits[24];
    size_t at = sizeof digits;
    digits[--at] = 0;
    do {
        digits[--at] = "0123456789abcdef"[number % base];
        number /= base;
    } while (number != 0);
    text_add(text, digits + at);
}

void text_add_number(struct text *text, uint64_t number) {
    add_digits(text, number, 10);
}

void text_add_address(struct text *text, uint64_t address) {
    text_add(text, "0x");
    add_digits(text, address, 16);
}
