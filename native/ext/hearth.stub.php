<?php

/**
 * The functions of the `hearth` extension. hearth_arginfo.h is kept in step with this file by hand; a test compares both
 * through reflection.
 */

/**
 * Waits for the next request, runs $handler for it and completes the answer. False: the server wants no more, the script
 * should end.
 */
function hearth_handle_request(callable $handler): bool {}

/** @alias hearth_handle_request */
function frankenphp_handle_request(callable $handler): bool {}

/** Completes the answer; the script goes on, what it prints from now on is dropped. */
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
 * Sends the header fields set so far: as an interim answer when $status is 100 to 199 (103: early hints), else as the head of
 * the answer itself. Returns what FrankenPHP's function of this name does: 1 for an interim answer (3 when none can be sent any
 * more), 0 for the head itself.
 */
function headers_send(int $status = 200): int {}

/**
 * Writes one line to the server's log, with the request's id. $level is a name of PSR-3 ("debug" to "emergency") or a number of
 * syslog (7 to 0).
 */
function hearth_log(string $message, int|string $level = "info", array $context = []): void {}

/** The same with FrankenPHP's levels: FRANKENPHP_LOG_LEVEL_DEBUG (-4), _INFO (0), _WARN (4), _ERROR (8). */
function frankenphp_log(string $message, int $level = FRANKENPHP_LOG_LEVEL_INFO, array $context = []): void {}

/**
 * Sends an event to the subscribers of one or several realtime channels, but not to the socket $exceptSocket. What is no string goes out
 * as JSON. True: the server has it. False: this run answers no client (a boot, a warm-up), so nothing is sent. Throws a ValueError
 * where a name or the data breaks a limit, and an Error where there is no server that could publish: see hearth_can_publish().
 */
function hearth_publish(array|string $channels, string $event, mixed $data, ?string $exceptSocket = null): bool {}

/** Whether hearth_publish() has a server with realtime behind it: in scripts that `hearth serve` runs itself. */
function hearth_can_publish(): bool {}

/** Runs $callback once, after the script has booted and before its first request. False when that has passed. */
function hearth_on_worker_start(callable $callback): bool {}

/**
 * Marks a connection to be kept between requests. Where state is shared anyway (model "worker") there is nothing to do and the
 * answer is true; where nothing outlives a request (model "request") it is false.
 */
function hearth_keep_connection(object $connection): bool {}

/**
 * For Hearth's own worker scripts: remembers the static variables inside functions and methods of files below $folder, but for files below
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
