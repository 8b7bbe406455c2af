<?php

/** Writes the request of a call that goes over the broker's HTTP socket without curl. */

declare(strict_types=1);

namespace Hearth\Egress;

/** @internal */
final class SocketRequest
{
    /** Framing fields of the caller, which are replaced: the length of the body is known. */
    private const FRAMING = ['transfer-encoding', 'content-length', 'connection', 'expect'];

    private function __construct()
    {
    }

    /**
     * Returns the bytes of the request, with its control field.
     *
     * @param list<array{string, string}> $fields
     */
    public static function message(string $method, Target $target, array $fields, string $body, string $control): string
    {
        $names = [];
        $lines = '';
        foreach ($fields as [$name, $value]) {
            $names[$key = strtolower($name)] = true;
            if (!in_array($key, self::FRAMING, true)) {
                $lines .= "{$name}: {$value}\r\n";
            }
        }
        $head = "{$method} {$target->absolute()} HTTP/1.1\r\n";
        $head .= isset($names['host']) ? '' : "Host: {$target->authority()}\r\n";
        if ($target->user !== null && !isset($names['authorization'])) {
            $head .= 'Authorization: Basic ' . base64_encode("{$target->user}:{$target->password}") . "\r\n";
        }
        $head .= $lines;
        if ($body !== '' || in_array($method, ['POST', 'PUT', 'PATCH'], true)) {
            $head .= 'Content-Length: ' . strlen($body) . "\r\n";
        }
        foreach (Listener::trace() as $name => $value) {
            $head .= "{$name}: {$value}\r\n";
        }
        return $head . Listener::CONTROL . ": {$control}\r\nConnection: close\r\n\r\n{$body}";
    }
}
