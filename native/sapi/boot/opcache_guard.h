/* OPcache in an application that has booted ahead:
 * - opcache_reset() does nothing, and says so. The booted classes stay whatever the cache drops, and the restart that it
 *   requests would wait for a process that never releases the cache.
 * - OPcache's clock stands still at the boot. So a file that is written later would never be old enough to be cached. It is
 *   cached when it is as old as opcache.file_update_protection says.
 * - For the same reason a cached file would never be compared with the disk again. With opcache.validate_timestamps, one that was
 *   cached after the boot is compared each time that it is included; one of the boot is not.
 */
#ifndef HEARTH_SAPI_BOOT_OPCACHE_GUARD_H
#define HEARTH_SAPI_BOOT_OPCACHE_GUARD_H

/* Once the engine has started, in a zygote that boots a script. */
void opcache_guard_refuse_reset(void);

/* Once the engine has started, before a script that serves more than one request. */
void opcache_guard_keep_clock(void);

/* Before each request, and before a snapshot is taken, so that no request has to. Only the first call changes something. */
void opcache_guard_boot_is_over(void);

#endif
