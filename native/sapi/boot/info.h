/* What `hearth check` wants to know of this PHP. */
#ifndef HEARTH_SAPI_BOOT_INFO_H
#define HEARTH_SAPI_BOOT_INFO_H

/* Prints one JSON object on standard output. Returns the exit code. The engine has been started. */
int info_print(void);

#endif
