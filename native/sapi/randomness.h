/* Random numbers never repeat: generators that live in the process's memory are fed from the kernel or seeded anew. */
#ifndef HEARTH_SAPI_RANDOMNESS_H
#define HEARTH_SAPI_RANDOMNESS_H

/* Once, before the engine starts. */
void randomness_prepare(void);
/* After each fork and each restore. */
void randomness_renew(void);

#endif
