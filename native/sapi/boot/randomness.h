/* Random numbers that neither a fork nor a restored snapshot can repeat.
 *
 * A generator with state in the process's memory gives the same numbers to every fork of one process, and again after each restore.
 * Therefore
 * - libraries get them from the kernel, number by number, or are made to seed again (OpenSSL, libsodium, libgcrypt, GnuTLS);
 * - GMP and SQLite have no seed in what is forked or restored, and take one at their first number;
 * - PHP's own generators (mt_rand(), shuffle(), lcg_value(), uniqid() ...) are seeded again in each request, as PHP does in any
 *   case when a request starts up. A seed set by the boot with mt_srand() is lost. random_bytes(), random_int(), session ids,
 *   password_hash() and tempnam() always read from the kernel. Objects of the application (Random\Engine\Mt19937 ...) belong to its
 *   state and stay unchanged.
 */
#ifndef HEARTH_SAPI_BOOT_RANDOMNESS_H
#define HEARTH_SAPI_BOOT_RANDOMNESS_H

/* Finds the loaded libraries and takes over their generators. Called in the zygote, after PHP's modules have started and before
 * any script, and again after a boot that may have loaded libraries (FFI). A repeated call is harmless. Not for requests, because
 * it asks the loader about each library. */
void randomness_prepare(void);

/* Begins a request in a forked or restored process in which PHP code has run before: each generator is seeded again before its next
 * number. No system call is needed unless the boot has used GnuTLS. */
void randomness_renew(void);

/* Generators that seed themselves at their first number forget their seeds: GMP's and SQLite's. Called before
 * workers are forked and before a snapshot is taken, so that neither holds a seed. */
void randomness_forget(void);

/* Returns why a restored snapshot would still repeat numbers, as far as randomness_prepare() can find out; NULL if none would.
 * Forks are always safe, because these libraries check the process id. Static. */
const char *randomness_obstacle(void);

#endif
