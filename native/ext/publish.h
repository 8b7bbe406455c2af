/* hearth_publish() and hearth_purge(): events for realtime channels, and tags of stored answers, from PHP to the server.
 *
 * Promises
 * - An event that the server would refuse for its form or size is refused here, with an exception that names the
 *   reason.
 */
#ifndef HEARTH_EXT_PUBLISH_H
#define HEARTH_EXT_PUBLISH_H

#include <php.h>

/* Reads from the environment whether the server has realtime, and its limits. */
void publish_startup(void);

ZEND_FUNCTION(hearth_publish);
ZEND_FUNCTION(hearth_can_publish);
ZEND_FUNCTION(hearth_purge);

#endif
