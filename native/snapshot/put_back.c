/* Restores the known pages while touching as little memory as possible. Lines that changed before are written from their copy, then a
 * hash over the live page shows whether others changed. The rest of the copy is read only if it differs.
 *
 * The hash is CLNH ("Faster 64-bit universal hashing using carry-less multiplications", Lemire and Kaser, 2015). Its key is random,
 * secret and as large as a page, so a given change is missed with a probability of at most 2^-64. `exact` avoids that.
 */
#include "snapshot/engine.h"

#if SNAPSHOT_ENGINE && defined(__x86_64__)

#include <immintrin.h>

/* Makes `live` what `copy` is. Returns whether it was not. Both aligned to LINE. */
static inline __attribute__((always_inline)) bool put_back_line(char *live, const char *copy) {
    __m128i *to = (__m128i *)live;
    const __m128i *from = (const __m128i *)copy;
    __m128i a = _mm_load_si128(from);
    __m128i b = _mm_load_si128(from + 1);
    __m128i c = _mm_load_si128(from + 2);
    __m128i d = _mm_load_si128(from + 3);
    __m128i same = _mm_and_si128(_mm_and_si128(_mm_cmpeq_epi8(a, _mm_load_si128(to)),
                                     _mm_cmpeq_epi8(b, _mm_load_si128(to + 1))),
        _mm_and_si128(
            _mm_cmpeq_epi8(c, _mm_load_si128(to + 2)), _mm_cmpeq_epi8(d, _mm_load_si128(to + 3))));
    if (_mm_movemask_epi8(same) == 0xffff) {
        return false;
    }
    _mm_store_si128(to, a);
    _mm_store_si128(to + 1, b);
    _mm_store_si128(to + 2, c);
    _mm_store_si128(to + 3, d);
    return true;
}

/* Returns the lines that were different. */
static inline __attribute__((always_inline)) uint64_t put_back_page(char *live, const char *copy) {
    uint64_t wrong = 0;
    for (int line = 0; line < LINES; line++) {
        wrong |= (uint64_t)put_back_line(live + line * LINE, copy + line * LINE) << line;
    }
    return wrong;
}

/* --- without a hash --------------------------------------------------------------------------------------------------------------------- */

static inline __attribute__((always_inline)) uint64_t compare_all(
    struct known_page *pages, uint64_t count, uint64_t restore) {
    uint64_t changed = 0;
    for (uint64_t i = 0; i < count; i++) {
        if (put_back_page(pages[i].live, pages[i].copy) != 0) {
            pages[i].changed_at = restore;
            changed++;
        }
    }
    return changed;
}

static uint64_t compare_128(struct known_page *pages, uint64_t count, const char *key,
    uint64_t restore, bool learns, uint64_t *misses) {
    (void)key;
    (void)learns;
    (void)misses;
    return compare_all(pages, count, restore);
}

__attribute__((target("avx2"))) static uint64_t compare_256(struct known_page *pages,
    uint64_t count, const char *key, uint64_t restore, bool learns, uint64_t *misses) {
    (void)key;
    (void)learns;
    (void)misses;
    uint64_t changed = 0;
    for (uint64_t i = 0; i < count; i++) {
        __m256i *live = (__m256i *)pages[i].live;
        const __m256i *copy = (const __m256i *)pages[i].copy;
        bool wrong = false;
        for (int at = 0; at < PAGE / 32; at += 4) {
            __m256i a = _mm256_load_si256(copy + at);
            __m256i b = _mm256_load_si256(copy + at + 1);
            __m256i c = _mm256_load_si256(copy + at + 2);
            __m256i d = _mm256_load_si256(copy + at + 3);
            __m256i differ =
                _mm256_or_si256(_mm256_or_si256(_mm256_xor_si256(a, _mm256_load_si256(live + at)),
                                    _mm256_xor_si256(b, _mm256_load_si256(live + at + 1))),
                    _mm256_or_si256(_mm256_xor_si256(c, _mm256_load_si256(live + at + 2)),
                        _mm256_xor_si256(d, _mm256_load_si256(live + at + 3))));
            if (!_mm256_testz_si256(differ, differ)) {
                _mm256_store_si256(live + at, a);
                _mm256_store_si256(live + at + 1, b);
                _mm256_store_si256(live + at + 2, c);
                _mm256_store_si256(live + at + 3, d);
                wrong = true;
            }
        }
        if (wrong) {
            pages[i].changed_at = restore;
            changed++;
        }
    }
    return changed;
}

/* --- with one --------------------------------------------------------------------------------------------------------------------------- */

#define TARGET_128 "pclmul,sse4.1"
#define TARGET_256 "avx2,vpclmulqdq,pclmul"
#define TARGET_512 "avx512f,avx512vl,vpclmulqdq,pclmul"

__attribute__((target(TARGET_128))) static inline void clnh_128(
    const char *page, const char *key, uint64_t *hash) {
    __m128i sums[4] = {
        _mm_setzero_si128(), _mm_setzero_si128(), _mm_setzero_si128(), _mm_setzero_si128()};
    for (int at = 0; at < PAGE; at += 64) {
#pragma GCC unroll 4 /* or the sums live in memory */
        for (int lane = 0; lane < 4; lane++) {
            __m128i mixed = _mm_xor_si128(_mm_load_si128((const __m128i *)(page + at) + lane),
                _mm_load_si128((const __m128i *)(key + at) + lane));
            sums[lane] = _mm_xor_si128(sums[lane], _mm_clmulepi64_si128(mixed, mixed, 0x10));
        }
    }
    _mm_storeu_si128((__m128i *)hash,
        _mm_xor_si128(_mm_xor_si128(sums[0], sums[1]), _mm_xor_si128(sums[2], sums[3])));
}

__attribute__((target(TARGET_256))) static inline void clnh_256(
    const char *page, const char *key, uint64_t *hash) {
    __m256i sums[4] = {_mm256_setzero_si256(), _mm256_setzero_si256(), _mm256_setzero_si256(),
        _mm256_setzero_si256()};
    for (int at = 0; at < PAGE; at += 128) {
#pragma GCC unroll 4 /* or the sums live in memory */
        for (int lane = 0; lane < 4; lane++) {
            __m256i mixed = _mm256_xor_si256(_mm256_load_si256((const __m256i *)(page + at) + lane),
                _mm256_load_si256((const __m256i *)(key + at) + lane));
            sums[lane] = _mm256_xor_si256(sums[lane], _mm256_clmulepi64_epi128(mixed, mixed, 0x10));
        }
    }
    __m256i sum =
        _mm256_xor_si256(_mm256_xor_si256(sums[0], sums[1]), _mm256_xor_si256(sums[2], sums[3]));
    _mm_storeu_si128((__m128i *)hash,
        _mm_xor_si128(_mm256_castsi256_si128(sum), _mm256_extracti128_si256(sum, 1)));
}

__attribute__((target(TARGET_512))) static inline void clnh_512(
    const char *page, const char *key, uint64_t *hash) {
    __m512i sums[4] = {_mm512_setzero_si512(), _mm512_setzero_si512(), _mm512_setzero_si512(),
        _mm512_setzero_si512()};
    for (int at = 0; at < PAGE; at += 256) {
#pragma GCC unroll 4 /* or the sums live in memory */
        for (int lane = 0; lane < 4; lane++) {
            __m512i mixed = _mm512_xor_si512(_mm512_load_si512((const __m512i *)(page + at) + lane),
                _mm512_load_si512((const __m512i *)(key + at) + lane));
            sums[lane] = _mm512_xor_si512(sums[lane], _mm512_clmulepi64_epi128(mixed, mixed, 0x10));
        }
    }
    __m512i sum =
        _mm512_xor_si512(_mm512_xor_si512(sums[0], sums[1]), _mm512_xor_si512(sums[2], sums[3]));
    __m256i half = _mm256_xor_si256(_mm512_castsi512_si256(sum), _mm512_extracti64x4_epi64(sum, 1));
    _mm_storeu_si128((__m128i *)hash,
        _mm_xor_si128(_mm256_castsi256_si128(half), _mm256_extracti128_si256(half, 1)));
}

#define NAME hashed_128
#define TARGET TARGET_128
#define HASH clnh_128
#include "snapshot/put_back_loop.h"

#define NAME hashed_256
#define TARGET TARGET_256
#define HASH clnh_256
#include "snapshot/put_back_loop.h"

#define NAME hashed_512
#define TARGET TARGET_512
#define HASH clnh_512
#include "snapshot/put_back_loop.h"

put_back_function *put_back_choose(bool exact, const char **name) {
    __builtin_cpu_init();
    bool wide = __builtin_cpu_supports("vpclmulqdq");
    if (!exact && wide && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512vl")) {
        *name = "avx512";
        return hashed_512;
    }
    if (!exact && wide && __builtin_cpu_supports("avx2")) {
        *name = "avx2";
        return hashed_256;
    }
    if (!exact && __builtin_cpu_supports("pclmul") && __builtin_cpu_supports("sse4.1")) {
        *name = "pclmul";
        return hashed_128;
    }
    *name = __builtin_cpu_supports("avx2") ? "compare avx2" : "compare";
    return __builtin_cpu_supports("avx2") ? compare_256 : compare_128;
}

#endif
