/* put_back.c for ARM64: the same comparison and the same hash with NEON and PMULL. A line is 64 bytes with pages of 4 KB, 1 KB with those of 64. */
#include "snapshot/engine.h"

#if SNAPSHOT_ENGINE && defined(__aarch64__)

#include <arm_neon.h>
#include <sys/auxv.h>

enum {
    BLOCK = 64,         /* bytes that are compared and written at once */
    HAS_PMULL = 1 << 4, /* HWCAP_PMULL; asm/hwcap.h */
};

/* Makes `live` what `copy` is. Returns whether it was not. Both aligned to BLOCK. */
static inline __attribute__((always_inline)) bool put_back_block(char *live, const char *copy) {
    uint8_t *to = (uint8_t *)live;
    const uint8x16x4_t then = vld1q_u8_x4((const uint8_t *)copy);
    const uint8x16x4_t now = vld1q_u8_x4(to);
    uint8x16_t differ =
        vorrq_u8(vorrq_u8(veorq_u8(then.val[0], now.val[0]), veorq_u8(then.val[1], now.val[1])),
            vorrq_u8(veorq_u8(then.val[2], now.val[2]), veorq_u8(then.val[3], now.val[3])));
    if (vmaxvq_u32(vreinterpretq_u32_u8(differ)) == 0) {
        return false;
    }
    vst1q_u8_x4(to, then);
    return true;
}

static inline __attribute__((always_inline)) bool put_back_line(char *live, const char *copy) {
    bool wrong = false;
    const uint64_t line = LINE;
    for (uint64_t at = 0; at < line; at += BLOCK) {
        wrong |= put_back_block(live + at, copy + at);
    }
    return wrong;
}

/* Returns the lines that were different. */
static inline __attribute__((always_inline)) uint64_t put_back_page(char *live, const char *copy) {
    uint64_t wrong = 0;
    for (uint64_t line = 0; line < LINES; line++) {
        wrong |= (uint64_t)put_back_line(live + line * LINE, copy + line * LINE) << line;
    }
    return wrong;
}

/* Instructions are fetched by a cache that does not see writes, so restored code (PCRE's JIT)
 * would still be the request's. libgcc's __clear_cache() cannot be used, because it keeps a
 * variable. Arm ARM, B2.4.4 */
static void synchronize_code(char *code, uint64_t len) {
    enum { WORD = 4 };
    uint64_t type;
    __asm__("mrs %0, ctr_el0" : "=r"(type));
    const uint64_t data_line = (uint64_t)WORD << (type >> 16 & 15);
    const uint64_t code_line = (uint64_t)WORD << (type & 15);
    for (uint64_t at = 0; at < len; at += data_line) {
        __asm__ volatile("dc cvau, %0" : : "r"(code + at) : "memory");
    }
    __asm__ volatile("dsb ish" : : : "memory");
    for (uint64_t at = 0; at < len; at += code_line) {
        __asm__ volatile("ic ivau, %0" : : "r"(code + at) : "memory");
    }
    __asm__ volatile("dsb ish\n    isb" : : : "memory");
}

void put_back_fetch(char *page) {
    synchronize_code(page, PAGE);
}

static void synchronize_changed(const struct known_page *pages, uint64_t count, uint64_t restore) {
    for (uint64_t i = 0; i < count; i++) {
        if (pages[i].executable && (pages[i].lines != 0 || pages[i].changed_at == restore)) {
            synchronize_code(pages[i].live, PAGE);
        }
    }
}

static uint64_t compare_neon(struct known_page *pages, uint64_t count, const char *key,
    uint64_t restore, bool learns, uint64_t *misses) {
    (void)key;
    (void)learns;
    (void)misses;
    uint64_t changed = 0;
    for (uint64_t i = 0; i < count; i++) {
        if (put_back_page(pages[i].live, pages[i].copy) != 0) {
            pages[i].changed_at = restore;
            changed++;
        }
    }
    synchronize_changed(pages, count, restore);
    return changed;
}

#define TARGET_PMULL "+crypto"

/* The sum of products of halves. CLNH multiplies pairs of words of the message, and any pairing
 * will do. Here the lower and the upper halves of neighbouring vectors are multiplied, as PMULL
 * and PMULL2 do it. */
__attribute__((target(TARGET_PMULL))) static inline void clnh_pmull(
    const char *page, const char *key, uint64_t *hash) {
    uint8x16_t sums[4] = {vdupq_n_u8(0), vdupq_n_u8(0), vdupq_n_u8(0), vdupq_n_u8(0)};
    const uint64_t size = PAGE;
    for (uint64_t at = 0; at < size; at += 64) {
        const uint8x16x4_t data = vld1q_u8_x4((const uint8_t *)page + at);
        const uint8x16x4_t with = vld1q_u8_x4((const uint8_t *)key + at);
#pragma GCC unroll 2
        for (int pair = 0; pair < 2; pair++) {
            poly64x2_t a = vreinterpretq_p64_u8(veorq_u8(data.val[2 * pair], with.val[2 * pair]));
            poly64x2_t b =
                vreinterpretq_p64_u8(veorq_u8(data.val[2 * pair + 1], with.val[2 * pair + 1]));
            sums[2 * pair] = veorq_u8(sums[2 * pair],
                vreinterpretq_u8_p128(vmull_p64(vgetq_lane_p64(a, 0), vgetq_lane_p64(b, 0))));
            sums[2 * pair + 1] =
                veorq_u8(sums[2 * pair + 1], vreinterpretq_u8_p128(vmull_high_p64(a, b)));
        }
    }
    vst1q_u8((uint8_t *)hash, veorq_u8(veorq_u8(sums[0], sums[1]), veorq_u8(sums[2], sums[3])));
}

#define NAME hashed_pmull
#define TARGET TARGET_PMULL
#define HASH clnh_pmull
#include "snapshot/put_back_loop.h"

static uint64_t hash_pmull(struct known_page *pages, uint64_t count, const char *key,
    uint64_t restore, bool learns, uint64_t *misses) {
    uint64_t changed = hashed_pmull(pages, count, key, restore, learns, misses);
    synchronize_changed(pages, count, restore);
    return changed;
}

put_back_function *put_back_choose(bool exact, const char **name) {
    bool hashes = !exact && (getauxval(AT_HWCAP) & HAS_PMULL) != 0;
    *name = hashes ? "pmull" : "compare neon";
    return hashes ? hash_pmull : compare_neon;
}

#endif
