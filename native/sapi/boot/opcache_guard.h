/* opcache_reset() does nothing if the application has booted ahead, and says so. The booted
 * classes stay whatever the cache drops, and the restart that it requests would wait for a process
 * that never releases the cache.
 */
#ifndef HEARTH_SAPI_BOOT_OPCACHE_GUARD_H
#define HEARTH_SAPI_BOOT_OPCACHE_GUARD_H

/* Once the engine has started, in a zygote that boots a script. */
void opcache_guard_install(void);

#endif
