/* opcache_reset() where the application has booted ahead: the booted classes stay whatever the cache forgets, and the restart that it asks for
 * waits for a process that never lets go. So it does nothing, and says so.
 */
#ifndef HEARTH_SAPI_BOOT_OPCACHE_GUARD_H
#define HEARTH_SAPI_BOOT_OPCACHE_GUARD_H

/* Once the engine has started, in a zygote that boots a script. */
void opcache_guard_install(void);

#endif
