/* Settings that belong to a place: .user.ini files, and the [PATH=] and [HOST=] sections of php.ini, as php-fpm has them.
 *
 * Promises
 * - A directory is looked at once in user_ini.cache_ttl seconds.
 * - The engine takes every setting back at the end of the request.
 */
#ifndef HEARTH_SAPI_REQUEST_USER_INI_H
#define HEARTH_SAPI_REQUEST_USER_INI_H

/* Called while the request starts. Borrowed: all; each may be NULL. */
void user_ini_activate(const char *script, const char *document_root, const char *server_name);

#endif
