/* The engine's collector of cycles, and the values of the boot.
 *
 * Promises
 * - What the boot left is never noted as a possible root: it is either restored after a request, or lives as long as the process. Values that
 *   a request makes are collected as usual.
 */
#ifndef HEARTH_SAPI_MODELS_CYCLE_COLLECTOR_H
#define HEARTH_SAPI_MODELS_CYCLE_COLLECTOR_H

/* Exempts all objects, and the arrays that they, closures, static members and variables and globals hold. Values that are exempt already are
 * skipped. Allocates no request memory. */
void cycle_collector_exempt_boot(void);

#endif
