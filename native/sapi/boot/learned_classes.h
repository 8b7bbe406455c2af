/* Classes that warm-ups have loaded: known autoloaders (learned_loaders.h) found them in files with nothing but one class. The zygote compiles
 * and links them, and hides them again. A request that asks its autoloaders for one gets it, and they are not called.
 *
 * Promises
 * - A class is there from the moment on at which the autoloaders would have loaded it, with the same classes and files beside it. An include of
 *   its file does what it always does.
 * - If the autoloaders are not as at the wait point, or a class that this one builds on is another, they are called as always.
 * - Classes that PHP warns of, and files that do anything else, are left to the autoloaders.
 * - No code of the application runs in the zygote.
 */
#ifndef HEARTH_SAPI_BOOT_LEARNED_CLASSES_H
#define HEARTH_SAPI_BOOT_LEARNED_CLASSES_H

#include <php.h>
#include <stdbool.h>

/* At the wait point, before the first temporary fork. */
void learned_classes_begin(void);

/* In the temporary fork: notes what autoloaders find from here on. */
void learned_classes_watch(void);
/* Calls `report` for each class, those that others build on first, until it returns false. */
void learned_classes_report(bool (*report)(const char *bytes, size_t len));

/* Returns whether a file's code has nothing to do when it runs but to declare. */
bool learned_classes_only_declares(const zend_op_array *code);

/* In the zygote: takes one of a report. */
void learned_classes_take(const char *bytes, size_t len);
/* Makes those that were taken ready. Once, behind the last temporary fork. */
void learned_classes_prepare(void);
/* How many are ready, and the file of each. Borrowed. */
size_t learned_classes_count(void);
zend_string *learned_classes_file(size_t at);

#endif
