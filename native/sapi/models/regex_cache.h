/* The engine's cache of compiled regular expressions, prepared for a snapshot.
 *
 * Promises
 * - Entries that are in use stay where they are. Only memory that the engine allocated and would free by itself is replaced.
 * - The layout of an entry is found by inspection. If that fails, nothing is moved, which only costs speed.
 */
#ifndef HEARTH_SAPI_MODELS_REGEX_CACHE_H
#define HEARTH_SAPI_MODELS_REGEX_CACHE_H

/* Moves the entries next to each other. Each match raises and lowers the counter of its entry, so each page that holds one must be checked after a
 * request. Call it in the zygote, outside a request. */
void regex_cache_gather(void);

#endif
