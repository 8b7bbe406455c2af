/* Remembers and restores static variables inside functions, which PHP code cannot access.
 *
 * Promises
 * - Applies only to functions and methods of files below one folder. Closures have their own copies and are not changed.
 * - A function that had not run when they were remembered starts with its initial values, as in a new process.
 */
#ifndef HEARTH_EXT_FUNCTION_STATICS_H
#define HEARTH_EXT_FUNCTION_STATICS_H

#include <php.h>

/* Remembers the variables of files below `folder`, except files below a folder of `foreign` (array of strings). All end
 * with a slash. Borrowed: both. */
void function_statics_remember(const zend_string *folder, HashTable *foreign);
/* Restores the remembered values, if there are any. May run destructors. */
void function_statics_put_back(void);
/* Called at the end of the script: forgets the remembered values. */
void function_statics_forget(void);

#endif
