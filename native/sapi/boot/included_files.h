/* The files that the application's boot has included, for a server that watches them. */
#ifndef HEARTH_SAPI_BOOT_INCLUDED_FILES_H
#define HEARTH_SAPI_BOOT_INCLUDED_FILES_H

/* Sends the paths of the files that PHP has included so far, in one FILES frame. Streams and archives are left out. */
void included_files_report(void);

#endif
