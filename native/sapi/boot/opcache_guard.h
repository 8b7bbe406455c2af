/* OPcache in an application that has booted ahead:
 * - opcache_reset() does nothing, and says so. The booted classes stay whatever the cache drops, and the restart that it
 *   requests would wait for a process that never releases the cache.
 * - A file that was written after the boot is cached when it is as old as opcache.file_update_protection says. OPcache's clock
 *   is that of the boot, so without this it would be compiled again for each request.
 */
#ifndef HEARTH_SAPI_BOOT_OPCACHE_GUARD_H
#define HEARTH_SAPI_BOOT_OPCACHE_GUARD_H

/* Once the engine has started, in a zygote that boots a script. */
void opcache_guard_refuse_reset(void);

/* Once the engine has started, before a script that serves more than one request. */
void opcache_guard_keep_protection(void);

#endif
