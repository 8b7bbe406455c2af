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

static inline __attribute__((always_inline)) bool same_128(const char *live, const char *copy) {
    const __m128i *a = (const __m128i *)live;
    const __m128i *b = (const __m128i *)copy;
    __m128i differ[2] = {_mm_setzero_si128(), _mm_setzero_si128()};
    for (int at = 0; at < PAGE / 16; at += 2) {
        differ[0] =
            _mm_or_si128(differ[0], _mm_xor_si128(_mm_load_si128(a + at), _mm_load_si128(b + at)));
        differ[1] = _mm_or_si128(
            differ[1], _mm_xor_si128(_mm_load_si128(a + at + 1), _mm_load_si128(b + at + 1)));
    }
    __m128i zero = _mm_cmpeq_epi8(_mm_or_si128(differ[0], differ[1]), _mm_setzero_si128());
    return _mm_movemask_epi8(zero) == 0xffff;
}

__attribute__((target("avx2"))) static inline bool same_256(const char *live, const char *copy) {
    const __m256i *a = (const __m256i *)live;
    const __m256i *b = (const __m256i *)copy;
    __m256i differ[2] = {_mm256_setzero_si256(), _mm256_setzero_si256()};
    for (int at = 0; at < PAGE / 32; at += 2) {
        differ[0] = _mm256_or_si256(
            differ[0], _mm256_xor_si256(_mm256_load_si256(a + at), _mm256_load_si256(b + at)));
        differ[1] = _mm256_or_si256(differ[1],
            _mm256_xor_si256(_mm256_load_si256(a + at + 1), _mm256_load_si256(b + at + 1)));
    }
    __m256i any = _mm256_or_si256(differ[0], differ[1]);
    return _mm256_testz_si256(any, any) != 0;
}

#define NAME compared_128
#define TARGET "sse2"
#define SAME same_128
#include "snapshot/put_back_loop.h"

#define NAME compared_256
#define TARGET "avx2"
#define SAME same_256
#include "snapshot/put_back_loop.h"

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

/* Without wide multiplications a hash takes longer than reading the copies, on processors that compare 32 bytes at once: on AMD's Zen 1, 287 ns
 * a page against 150. */
put_back_function *put_back_choose(bool exact, const char **name) {
    __builtin_cpu_init();
    bool wide = __builtin_cpu_supports("avx2");
    bool hashes = !exact && __builtin_cpu_supports("pclmul") && __builtin_cpu_supports("sse4.1");
    bool hashes_wide = hashes && wide && __builtin_cpu_supports("vpclmulqdq");
    if (hashes_wide && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512vl")) {
        *name = "avx512";
        return hashed_512;
    }
    if (hashes_wide) {
        *name = "avx2";
        return hashed_256;
    }
    if (wide) {
        *name = "compare avx2";
        return compared_256;
    }
    *name = hashes ? "pclmul" : "compare";
    return hashes ? hashed_128 : compared_128;
}

#endif
