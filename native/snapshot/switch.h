/* Two stacks: the caller's, which is part of the snapshot, and the engine's, which is not. */
#ifndef HEARTH_SNAPSHOT_SWITCH_H
#define HEARTH_SNAPSHOT_SWITCH_H

#include <stdbool.h>

/* Saves the stack pointer, and the registers that a function must preserve, in *context and on the
 * caller's stack. Then runs `run` on the stack that ends at `stack`. Returns true when `run`
 * returns, and false each time switch_back() comes here. */
bool switch_save(void **context, void *stack, void (*run)(void));
/* Continues as the return of the switch_save() that filled `context`. */
_Noreturn void switch_back(void *context);
/* Runs `run`, which does not return, on the stack that ends at `stack`. */
_Noreturn void switch_to(void *stack, void (*run)(bool), bool argument);

#endif
