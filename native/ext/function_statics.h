/* Static variables inside functions, which PHP code cannot reach: remembered, and put back.
 *
 * Promises
 * - Only functions and methods of files below one folder are looked at; closures have copies of their own and are left alone.
 * - A function that had not run when they were remembered starts with its initial values, as in a new process.
 */
#ifndef HEARTH_EXT_FUNCTION_STATICS_H
#define HEARTH_EXT_FUNCTION_STATICS_H

#include <php.h>

/* Files below `folder` are looked at, but for those below a folder of `foreign` (array of strings). All end with a slash. Borrowed: both. */
void function_statics_remember(const zend_string *folder, HashTable *foreign);
/* Nothing when nothing was remembered. May run destructors. */
void function_statics_put_back(void);
/* At the end of the script. */
void function_statics_forget(void);

#endif
