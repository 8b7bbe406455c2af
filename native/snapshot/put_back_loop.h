/* The loops over all known pages, once for each width of registers. Defines NAME; wants, and undefines:
 *   NAME     the function
 *   TARGET   what the processor must have
 *   HASH     void HASH(const char *page, const char *key, uint64_t *hash), or
 *   SAME     bool SAME(const char *live, const char *copy), which compares pages
 *
 * First all lines that changed before are written, then all pages are hashed or compared: the second loop reads memory as fast as it comes,
 * and takes no branch that depends on what it reads.
 */
__attribute__((target(TARGET))) static uint64_t NAME(struct known_page *pages, uint64_t count,
    const char *key, uint64_t restore, bool learns, uint64_t *misses) {
    for (uint64_t i = 0; i < count; i++) {
        struct known_page *page = &pages[i];
        uint64_t wrong = 0; /* lines that were put back */
        for (uint64_t lines = page->lines; lines != 0; lines &= lines - 1) {
            int line = __builtin_ctzll(lines);
            char *live = page->live + line * LINE;
            const char *copy = page->copy + line * LINE;
            if (learns) {
                wrong |= (uint64_t)put_back_line(live, copy) << line;
            } else {
                __builtin_memcpy(live, copy, LINE);
            }
        }
        if (wrong != 0) {
            page->lines_next |= wrong;
            page->changed_at = restore;
        }
    }
    uint64_t changed = 0;
    for (uint64_t i = 0; i < count; i++) {
        struct known_page *page = &pages[i];
#ifdef HASH
        uint64_t hash[2];
        if (!page->hashed) {
            HASH(page->copy, key, page->hash);
            page->hashed = true;
        }
        HASH(page->live, key, hash);
        bool same = ((hash[0] ^ page->hash[0]) | (hash[1] ^ page->hash[1])) == 0;
        *misses += !same;
#else
        (void)key;
        (void)misses;
        bool same = SAME(page->live, page->copy);
#endif
        if (!same) {
            uint64_t more = put_back_page(page->live, page->copy);
            page->lines |= more;
            page->lines_next |= more;
            page->changed_at = restore;
        }
        changed += page->changed_at == restore;
    }
    return changed;
}
#undef NAME
#undef TARGET
#undef HASH
#undef SAME
