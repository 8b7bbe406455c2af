/* hearth_socket_send() and hearth_socket_close(): messages to clients whose WebSockets the application handles. */
#ifndef HEARTH_EXT_SOCKETS_H
#define HEARTH_EXT_SOCKETS_H

#include <php.h>

/* Reads where the server listens (HEARTH_SOCKETS). */
void sockets_startup(void);

PHP_FUNCTION(hearth_socket_send);
PHP_FUNCTION(hearth_socket_close);

#endif
