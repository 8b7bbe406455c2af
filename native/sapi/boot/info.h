/* Information about this PHP for `hearth check`. */
#ifndef HEARTH_SAPI_BOOT_INFO_H
#define HEARTH_SAPI_BOOT_INFO_H

/* Prints one JSON object on standard output. Returns the exit code. The engine has been started. */
int info_print(void);

#endif
