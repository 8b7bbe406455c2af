/* What an entry script prints before it waits for requests: kept, and sent with each of them.
 *
 * Promises
 * - An answer is the one that a script without a wait point would have sent: output that had left PHP's buffers comes first, under the
 *   headers of that moment.
 * - A script that never waits loses none of its words: they go to standard output.
 */
#ifndef HEARTH_SAPI_OUTPUT_BOOT_OUTPUT_H
#define HEARTH_SAPI_OUTPUT_BOOT_OUTPUT_H

#include <stdbool.h>
#include <stddef.h>

/* From now on output without a request is kept. */
void boot_output_begin(void);
/* Keeps the output. False: nothing is kept now, because the script is not an entry script. Borrowed: data. */
bool boot_output_keep(const char *data, size_t len);
/* Sends what was kept as the beginning of the current request's answer. `headers_sent`: the headers had left PHP as well. */
void boot_output_send(bool headers_sent);
/* The script has ended and never waited. */
void boot_output_print(void);

#endif
