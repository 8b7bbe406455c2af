/* Random numbers that neither a fork nor a restored snapshot can repeat.
 *
 * A generator that keeps its state in the process's memory gives the same numbers to every fork of one process, and again after
 * each restore. So
 * - libraries get them from the kernel, number by number, or are made to seed again (OpenSSL, libsodium, libgcrypt, GnuTLS);
 * - PHP's own generators (mt_rand(), shuffle(), lcg_value(), uniqid() ...) are seeded again in each request, as PHP does in any case
 *   when a request starts up. What the boot did with mt_srand() is lost by that.
 * random_bytes(), random_int(), session ids, password_hash() and tempnam() ask the kernel anyway. Objects of the application
 * (Random\Engine\Mt19937 ...) are its state and stay as the boot made them.
 */
#ifndef HEARTH_SAPI_BOOT_RANDOMNESS_H
#define HEARTH_SAPI_BOOT_RANDOMNESS_H

/* Looks for the libraries that are loaded now and takes their generators over. In the zygote, after PHP's modules have started and
 * before any script; again when a boot that may have loaded libraries (FFI) is over. Repeating it does no harm. Not in a request:
 * it asks the loader about each library. */
void randomness_prepare(void);

/* Begins a request in a process that has been forked or restored after PHP code ran in it: the next number of each generator is
 * seeded again. Cheap: no system call unless the boot has used GnuTLS. */
void randomness_renew(void);

/* Why a restored snapshot would repeat numbers all the same, as far as randomness_prepare() can tell; NULL when nothing does. Forks
 * are safe even then: these libraries look at the process id. Static. */
const char *randomness_obstacle(void);

#endif
