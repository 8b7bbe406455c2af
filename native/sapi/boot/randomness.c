/* See randomness.h. */
#include "sapi/boot/randomness.h"

#include <dlfcn.h>
#include <errno.h>
#include <link.h>
#include <php.h>
#include <stdbool.h>
#include <sys/random.h>

#include "sapi/compat.h"

static const char *obstacle;

static zend_module_entry *php_random; /* NULL in a PHP without it, which there is none */
static void (*gnutls_refresh)(void);
static zend_module_entry *php_gmp;
static void (*sqlite_randomness)(int, void *);

static bool fill(unsigned char *buffer, size_t len) {
    size_t done = 0;
    while (done < len) {
        ssize_t got = getrandom(buffer + done, len - done, 0);
        if (got > 0) {
            done += (size_t)got;
        } else if (errno != EINTR) {
            return false;
        }
    }
    return true;
}

/* OpenSSL: a RAND_METHOD (openssl/rand.h). RAND_bytes_ex() and RAND_priv_bytes_ex(), crypto/rand/rand_lib.c, call it before any
 * DRBG, in every library context. Everything in libcrypto, libssl and its default provider draws through these two: keys, nonces,
 * initialisation vectors, the randoms of TLS. OpenSSL's own DRBGs detect a fork by the process id, but cannot detect a restore. */
struct rand_method {
    int (*seed)(const void *buffer, int len);
    int (*bytes)(unsigned char *buffer, int len);
    void (*cleanup)(void);
    int (*add)(const void *buffer, int len, double entropy);
    int (*pseudorand)(unsigned char *buffer, int len);
    int (*status)(void);
};

static int rand_bytes(unsigned char *buffer, int len) {
    return len >= 0 && fill(buffer, (size_t)len);
}

static int rand_seed(const void *buffer, int len) {
    (void)buffer, (void)len;
    return 1;
}

static int rand_add(const void *buffer, int len, double entropy) {
    (void)buffer, (void)len, (void)entropy;
    return 1;
}

static int rand_status(void) {
    return 1;
}

static const struct rand_method from_kernel = {
    .seed = rand_seed,
    .bytes = rand_bytes,
    .add = rand_add,
    .pseudorand = rand_bytes,
    .status = rand_status,
};

/* The symbol, if this very library defines it. */
static void *symbol_of(const struct link_map *library, void *handle, const char *name) {
    void *address = dlsym(handle, name);
    Dl_info info;
    if (address == NULL || dladdr(address, &info) == 0 || info.dli_fname == NULL ||
        strcmp(info.dli_fname, library->l_name) != 0) {
        return NULL;
    }
    return address;
}

static void prepare_openssl(const struct link_map *library, void *handle) {
    int (*set)(const struct rand_method *) = symbol_of(library, handle, "RAND_set_rand_method");
    const struct rand_method *(*get)(void) = symbol_of(library, handle, "RAND_get_rand_method");
    if (set == NULL) {
        if (symbol_of(library, handle, "RAND_bytes") != NULL) {
            obstacle =
                "a libcrypto without RAND_set_rand_method() keeps its random generator in memory";
        }
        return;
    }
    if (set(&from_kernel) != 1 || get == NULL || get() != &from_kernel) {
        obstacle = "OpenSSL refused RAND_set_rand_method(): its random generator stays in memory";
    }
    /* its module has its own generators, which it does not export */
    int (*available)(void *, const char *) = symbol_of(library, handle, "OSSL_PROVIDER_available");
    if (available != NULL && available(NULL, "fips") == 1) {
        obstacle = "OpenSSL's FIPS provider keeps its random generators in memory";
    }
}

/* The system's generator is the default; randombytes_internal_implementation keeps a key in memory. */
static void prepare_sodium(const struct link_map *library, void *handle) {
    const char *(*name)(void) = symbol_of(library, handle, "randombytes_implementation_name");
    int (*set)(void *) = symbol_of(library, handle, "randombytes_set_implementation");
    void *sysrandom = symbol_of(library, handle, "randombytes_sysrandom_implementation");
    if (name == NULL || strcmp(name(), "sysrandom") == 0) {
        return;
    }
    if (set == NULL || sysrandom == NULL || set(sysrandom) != 0) {
        obstacle = "libsodium's random generator stays in memory";
    }
}

/* Before its first use, libgcrypt can be configured to read every number from the system's generator; afterwards it refuses
 * (_gcry_set_preferred_rng_type(), random/random.c). */
static void prepare_gcrypt(const struct link_map *library, void *handle) {
    enum { GET_CURRENT_RNG_TYPE = 66, SET_PREFERRED_RNG_TYPE = 65, RNG_TYPE_SYSTEM = 3 };
    unsigned (*control)(int, ...) = symbol_of(library, handle, "gcry_control");
    if (control == NULL) {
        return;
    }
    int type = 0;
    control(SET_PREFERRED_RNG_TYPE, RNG_TYPE_SYSTEM);
    control(GET_CURRENT_RNG_TYPE, &type);
    if (type != RNG_TYPE_SYSTEM) {
        obstacle =
            "libgcrypt was used before its random generator could be replaced by the system's";
    }
}

void randomness_prepare(void) {
    obstacle = NULL;
    /* From glibc 2.41 on the first call maps memory for the vDSO's generator, which no restore resets. This call makes that
     * mapping exist from now on. */
    unsigned char unused;
    fill(&unused, sizeof unused);

    php_random = zend_hash_str_find_ptr(&module_registry, "random", sizeof "random" - 1);
    php_gmp = zend_hash_str_find_ptr(&module_registry, "gmp", sizeof "gmp" - 1);

    struct link_map *library = NULL;
    void *program = dlopen(NULL, RTLD_LAZY);
    if (program == NULL || dlinfo(program, RTLD_DI_LINKMAP, &library) != 0) {
        obstacle = "the loader does not tell which libraries are loaded";
        return;
    }
    /* each one is changed: a library may bring its own OpenSSL beside the system's */
    for (; library != NULL; library = library->l_next) {
        void *handle =
            library->l_name[0] != '\0' ? dlopen(library->l_name, RTLD_LAZY | RTLD_NOLOAD) : NULL;
        if (handle == NULL) {
            continue;
        }
        prepare_openssl(library, handle);
        prepare_sodium(library, handle);
        prepare_gcrypt(library, handle);
        void (*refresh)(void) = symbol_of(library, handle, "gnutls_rnd_refresh");
        if (refresh != NULL) {
            gnutls_refresh = refresh;
        }
        void (*randomness)(int, void *) = symbol_of(library, handle, "sqlite3_randomness");
        if (randomness != NULL) {
            sqlite_randomness = randomness;
        }
        dlclose(handle);
    }
    dlclose(program);
}

void randomness_renew(void) {
    /* PHP_RINIT_FUNCTION(random), ext/random/random.c: forgets that the generators were seeded */
    if (php_random != NULL && php_random->request_startup_func != NULL) {
        php_random->request_startup_func(php_random->type, php_random->module_number);
    }
    /* wrap_nettle_rnd_refresh(), lib/nettle/rnd.c: new keys from the system; nothing if no number has been drawn in this process */
    if (gnutls_refresh != NULL) {
        gnutls_refresh();
    }
}

void randomness_forget(void) {
    /* ZEND_MODULE_DEACTIVATE_D(gmp), ext/gmp/gmp.c: the next number begins with a new seed */
    if (php_gmp != NULL && php_gmp->request_shutdown_func != NULL) {
        php_gmp->request_shutdown_func(php_gmp->type, php_gmp->module_number);
    }
    /* https://sqlite.org/c3ref/randomness.html: without a buffer it forgets its seed */
    if (sqlite_randomness != NULL) {
        sqlite_randomness(0, NULL);
    }
}

const char *randomness_obstacle(void) {
    return obstacle;
}
