<?php

// A request object of a framework's test, sent over HTTP as it would have been handled in the test's process.

declare(strict_types=1);

namespace Hearth\Conformance;

use Symfony\Component\HttpFoundation\Request;

/**
 * What of $_SERVER a test sets and no header carries.
 *
 * @return array<string, scalar>
 */
function carried(Request $request, string ...$more): array
{
    $names = array_flip(['REMOTE_ADDR', 'HTTPS', 'PHP_AUTH_USER', 'PHP_AUTH_PW', ...$more]);

    return array_filter(array_intersect_key($request->server->all(), $names), is_scalar(...));
}

/**
 * @param string $suite is for the server: the value of the header X-Suite, before base64
 *
 * @return array{int, array<string, list<string>>, string} status, header fields, body
 */
function exchange(string $address, Request $request, string $suite): array
{
    $headers = array_diff_key($request->headers->all(), ['content-length' => 1, 'cookie' => 1]);
    $body = $request->getContent();
    if ($body === '' && $request->request->count()) {
        $body = http_build_query($request->request->all());
    }
    $lines = ['X-Suite: ' . base64_encode($suite)];
    // curl sends one of its own otherwise.
    if (!isset($headers['accept'])) {
        $lines[] = 'Accept:';
    }
    foreach ($headers as $name => $values) {
        foreach ($values as $value) {
            $lines[] = (string) $value === '' ? "$name;" : "$name: $value";
        }
    }
    $cookies = [];
    foreach ($request->cookies->all() as $name => $value) {
        $cookies[] = rawurlencode($name) . '=' . rawurlencode($value);
    }
    $answered = [];
    $handle = curl_init($address . $request->getRequestUri());
    curl_setopt_array($handle, [
        CURLOPT_CUSTOMREQUEST => $request->getMethod(), CURLOPT_NOBODY => $request->getMethod() === 'HEAD', CURLOPT_RETURNTRANSFER => true,
        CURLOPT_HTTPHEADER => $lines, CURLOPT_PATH_AS_IS => true, CURLOPT_TIMEOUT => 60,
        CURLOPT_HEADERFUNCTION => static function ($_, string $line) use (&$answered): int {
            if (str_contains($line, ':')) {
                [$name, $value] = explode(':', $line, 2);
                $answered[strtolower($name)][] = trim($value);
            }

            return strlen($line);
        },
    ] + ($body === '' ? [] : [CURLOPT_POSTFIELDS => $body]) + ($cookies ? [CURLOPT_COOKIE => implode('; ', $cookies)] : []));
    $content = curl_exec($handle);
    if ($content === false) {
        throw new \RuntimeException('no answer: ' . curl_error($handle));
    }

    return [curl_getinfo($handle, CURLINFO_RESPONSE_CODE), $answered, $content];
}

/** Asks the suite's program for a server of the application that $about describes. Returns its port. */
function port_of(array $about): string
{
    $context = stream_context_create(['http' => ['method' => 'POST', 'header' => 'Content-Type: application/json', 'content' => json_encode($about), 'timeout' => 120, 'ignore_errors' => true]]);
    $answer = file_get_contents(getenv('SUITE_CONTROL'), false, $context);
    if (!ctype_digit($answer)) {
        throw new \RuntimeException("no server: $answer");
    }

    return $answer;
}
