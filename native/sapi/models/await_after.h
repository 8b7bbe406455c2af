/* php.await_after: an entry script waits when it has included a certain file for the first time, without a line of its own.
 *
 * Promises
 * - The file is included as without it: in the scope of the include, with its return value and its path.
 * - Once it waits it costs a comparison for each file that is compiled.
 */
#ifndef HEARTH_SAPI_MODELS_AWAIT_AFTER_H
#define HEARTH_SAPI_MODELS_AWAIT_AFTER_H

/* Before the script is compiled. Static: file. */
void await_after_file(const char *file);

#endif
