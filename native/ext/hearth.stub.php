<?php

/**
 * The functions of the `hearth` extension. hearth_arginfo.h is kept in step with this file by hand; a test compares both
 * through reflection.
 */

/**
 * Waits for the next request, runs $handler for it and completes the answer. False: the server sends no more requests, and the script
 * should end.
 */
function hearth_handle_request(callable $handler): bool {}

/** @alias hearth_handle_request */
function frankenphp_handle_request(callable $handler): bool {}

/**
 * Waits for the request. What the script has done up to here is done ahead: with each request it continues from this line, to its end.
 * True: it has waited, and the superglobals are those of the request. False: nothing to wait for, as in the model "request", in php-fpm
 * and on the command line. Throws an Error where no process can wait: in a fiber, in an output callback, with an open session.
 */
function hearth_await_request(): bool {}

/** Completes the answer. The script continues, and its further output is discarded. */
function hearth_finish_request(): bool {}

/** @alias hearth_finish_request */
function frankenphp_finish_request(): bool {}

/** @alias hearth_finish_request */
function fastcgi_finish_request(): bool {}

/** The request's header fields by name, as the client's server would print them: `Content-Type`, `X-Request-Id`. */
function hearth_request_headers(): array {}

/** @alias hearth_request_headers */
function frankenphp_request_headers(): array {}

/** @alias hearth_request_headers */
function apache_request_headers(): array {}

/** @alias hearth_request_headers */
function getallheaders(): array {}

/** The header fields set so far for the answer, by name; of a repeated one the last. */
function hearth_response_headers(): array {}

/** @alias hearth_response_headers */
function frankenphp_response_headers(): array {}

/** @alias hearth_response_headers */
function apache_response_headers(): array {}

/**
 * Sends the header fields set so far. If $status is 100 to 199 (103: early hints), they are an interim answer, otherwise the head of the
 * answer itself. Returns the same as FrankenPHP's function of this name: 1 for an interim answer (3 if none can be sent any more), 0 for
 * the head.
 */
function headers_send(int $status = 200): int {}

/**
 * Writes one line to the server's log, with the request's id. $level is a name of PSR-3 ("debug" to "emergency") or a number of
 * syslog (7 to 0).
 */
function hearth_log(string $message, int|string $level = "info", array $context = []): void {}

/** Logs a message with FrankenPHP's levels: FRANKENPHP_LOG_LEVEL_DEBUG (-4), _INFO (0), _WARN (4), _ERROR (8). */
function frankenphp_log(string $message, int $level = FRANKENPHP_LOG_LEVEL_INFO, array $context = []): void {}

/**
 * Sends an event to the subscribers of one or several realtime channels, but not to the socket $exceptSocket. Data other than strings are
 * sent as JSON. True: the server has received it. False: this run answers no client (a boot, a warm-up), so nothing is sent. Throws a
 * ValueError if a name or the data exceeds a limit, and an Error if no server can publish: see hearth_can_publish().
 */
function hearth_publish(array|string $channels, string $event, mixed $data, ?string $exceptSocket = null): bool {}

/** Returns whether hearth_publish() can reach a server with channels, as in scripts that `hearth serve` runs itself. */
function hearth_can_publish(): bool {}

/**
 * Removes the answers that the server has stored with one of these tags (`Surrogate-Key` or `Cache-Tag`). True: the server has received it,
 * before the answer to this request. False: this run answers no client. Without an answer cache it does nothing.
 */
function hearth_purge(string ...$tags): bool {}

/**
 * Sends a message to a client whose WebSocket this application handles, by its id (`HEARTH_SOCKET_ID`). It does not wait for the client.
 * False: there is no such connection of this application, it is closing, or its client does not read. Throws a ValueError if $data is not
 * UTF-8 and not $binary, and an Error if the process has no server with WebSockets.
 */
function hearth_socket_send(string $id, string $data, bool $binary = false): bool {}

/** Closes such a connection, after the messages that wait for its client. False: there is none, or it is closing. */
function hearth_socket_close(string $id, int $code = 1000, string $reason = ""): bool {}

/** Runs $callback once, after the script has booted and before its first request. False when that has passed. */
function hearth_on_worker_start(callable $callback): bool {}

/**
 * Marks a connection to be kept between requests. In the model "worker", which shares state, it does nothing and returns true. In the
 * model "request", where nothing outlives a request, it returns false.
 */
function hearth_keep_connection(object $connection): bool {}

/**
 * For Hearth's own worker scripts: whether what they open when a worker starts may include files that stay open and locked, such as
 * databases of SQLite. False for a while after requests have closed such files or changed their locks: each of them has ended its worker.
 *
 * @internal
 */
function hearth_keep_files(): bool {}

/**
 * For Hearth's own worker scripts: adds strings to the $_SERVER of each later request, where neither the request nor the environment
 * has that name.
 *
 * @param array<string, string> $values
 *
 * @internal
 */
function hearth_add_server_variables(array $values): void {}

/**
 * For Hearth's own worker scripts: remembers the static variables inside functions and methods of files below $folder, except files below
 * the folders $foreign. All of them end with a slash.
 *
 * @internal
 */
function hearth_remember_statics(string $folder, array $foreign): void {}

/**
 * Puts those variables back; functions that had not run start with their initial values.
 *
 * @internal
 */
function hearth_put_back_statics(): void {}

/**
 * For Hearth's own worker scripts: remembers the properties of objects that their own classes may access, in place of those remembered
 * before.
 *
 * @param list<object> $objects
 *
 * @internal
 */
function hearth_remember_properties(array $objects): void {}

/**
 * Puts those properties back, object by object.
 *
 * @internal
 */
function hearth_put_back_properties(): void {}
