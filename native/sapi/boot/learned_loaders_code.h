/* Reads the compiled code of a function that is registered as autoloader: many only compute a file from the class's name and include it. */
#ifndef HEARTH_SAPI_BOOT_LEARNED_LOADERS_CODE_H
#define HEARTH_SAPI_BOOT_LEARNED_LOADERS_CODE_H

#include <php.h>
#include <stdbool.h>

/* Returns whether what the function does follows from its argument, its own text, values that it was made with, and from which files exist;
 * and whether it does nothing but to include a file. */
bool loader_code_is_plain(const zend_op_array *code);

#endif
