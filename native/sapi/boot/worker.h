/* The first step of every fork of the zygote: it opens its own connection to the server. */
#ifndef HEARTH_SAPI_BOOT_WORKER_H
#define HEARTH_SAPI_BOOT_WORKER_H

#include <stdbool.h>
#include <stddef.h>

/* The server's socket, in the zygote and in a worker. */
enum { SERVER = 3 };

/* Says HELLO; log lines go to the server from now on. */
void worker_begin(void);

/* Returns whether this process has only one thread. */
bool process_has_one_thread(void);

/* Writes the names of this process's other threads, separated by commas and each once: libraries name theirs. Empty: none can be read. */
void process_thread_names(char *names, size_t size);

#endif
