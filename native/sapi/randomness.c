/* See randomness.h. */
#include "randomness.h"

#include <php.h>
#include <ext/random/php_random.h>

void randomness_prepare(void) {
}

void randomness_renew(void) {
    RANDOM_G(combined_lcg_seeded) = false;
    RANDOM_G(mt19937_seeded) = false;
}
