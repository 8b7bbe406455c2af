<?php

declare(strict_types=1);

/**
 * The options that lead a handle through the broker's socket, as the packages set them. `$socket`: that of HEARTH_EGRESS.
 *
 * @return array<int, mixed> options of curl
 */
function through_listener(string $socket, string $url): array
{
    static $token = null;
    $token ??= trim((string) file_get_contents(dirname($socket) . '/egress.token'));
    return [
        CURLOPT_URL => 'http://hearth/',
        CURLOPT_REQUEST_TARGET => $url,
        CURLOPT_UNIX_SOCKET_PATH => $socket,
        CURLOPT_HTTPHEADER => ["Hearth-Control: token=\"$token\""],
    ];
}
