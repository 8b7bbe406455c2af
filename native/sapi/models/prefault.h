/* Model "fork" (D): a fork writes to much the same pages as the ones before it, and each first write is a page fault. The first forks report
 * which pages they made their own; later ones have the kernel copy all of them at once, before their request comes.
 *
 * Promises
 * - Changes no byte of memory: pages are only copied earlier than they would be.
 * - Without pagemap or MADV_POPULATE_WRITE (Linux 5.14) nothing happens.
 */
#ifndef HEARTH_SAPI_MODELS_PREFAULT_H
#define HEARTH_SAPI_MODELS_PREFAULT_H

/* Called in the zygote, before the first fork. */
void prefault_prepare(void);
/* Called in a fork, before it waits for its request. */
void prefault_populate(void);
/* Called in a fork after its answer: one of the first few forks records the pages that it has written. */
void prefault_learn(void);

#endif
