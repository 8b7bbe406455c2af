<?php

/*
 * A stand-in for the egress broker, for tests of how the packages handle its answers: `php stand-in.php FOLDER`.
 *
 * Listens on FOLDER/egress.sock, accepts the token of FOLDER/egress.token, and writes the control field of each accepted call to FOLDER/calls as a
 * line of JSON. Calls of `REASON-ERRNO.declined.test` and `REASON-ERRNO.failed.test` get that verdict; `killed.test`: the connection ends without an
 * answer; `mute.test`: no answer comes. All other calls are made, on a new connection each.
 */

declare(strict_types=1);

[, $folder] = $argv;
file_put_contents("{$folder}/egress.token", $token = bin2hex(random_bytes(32)));
$listener = stream_socket_server("unix://{$folder}/egress.sock", $errno, $error) ?: exit("{$error}\n");
pcntl_signal(SIGCHLD, SIG_IGN);
pcntl_async_signals(true);
echo "ready\n";

while (true) {
    $client = @stream_socket_accept($listener, 3600);
    if ($client !== false && pcntl_fork() === 0) {
        // Or a client could connect after the last accept().
        fclose($listener);
        serve($client, $folder, $token);
        exit;
    }
    // The child's alone: it ends the connection.
    unset($client);
}

/** @param resource $client */
function serve($client, string $folder, string $token): void
{
    $read = '';
    while (($end = strpos($read, "\r\n\r\n")) === false) {
        $piece = fread($client, 65536);
        if ($piece === '' || $piece === false) {
            return;
        }
        $read .= $piece;
    }
    [$head, $body] = [substr($read, 0, $end), substr($read, $end + 4)];
    $lines = explode("\r\n", $head);
    [$method, $target] = explode(' ', array_shift($lines));
    $fields = [];
    $kept = [];
    foreach ($lines as $line) {
        [$name, $value] = explode(':', $line, 2);
        $fields[strtolower($name)][] = trim($value);
        if (!in_array(strtolower($name), ['hearth-control', 'hearth-origin', 'connection', 'host'], true)) {
            $kept[] = $line;
        }
    }
    if (isset($fields['hearth-origin'])) {
        $target = $fields['hearth-origin'][0] . $target;
    }
    $control = $fields['hearth-control'][0] ?? '';
    file_put_contents("{$folder}/calls", json_encode(['method' => $method, 'target' => $target, 'control' => $control, 'fields' => $fields]) . "\n", FILE_APPEND | LOCK_EX);
    $url = parse_url($target);
    $authority = $url['host'] . (isset($url['port']) ? ":{$url['port']}" : '');
    if (count($fields['hearth-control'] ?? []) !== 1 || !str_contains($control, "token=\"{$token}\"")) {
        fwrite($client, "HTTP/1.1 403 Forbidden\r\nHearth-Declined: token; errno=0; message=\"wrong token\"\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
        return;
    }
    if (!in_array($fields['host'][0] ?? 'hearth', ['hearth', $authority], true)) {
        $url['host'] = 'host-0.declined.test';
    }
    if (preg_match('/^([a-z]+)-([0-9]+)\.(declined|failed)\.test$/', $url['host'], $found) === 1) {
        $name = ucfirst($found[3]);
        fwrite($client, "HTTP/1.1 502 Bad Gateway\r\nHearth-{$name}: {$found[1]}; errno={$found[2]}; message=\"the \\\"words\\\" of the broker\"\r\nContent-Length: 11\r\nConnection: close\r\n\r\nfor people\n");
        return;
    }
    // PHP's streams do not distinguish a reset from an end.
    if (($url['path'] ?? '') === '/reset') {
        fwrite($client, "HTTP/1.1 502 Bad Gateway\r\nHearth-Failed: reset; errno=56; message=\"Connection reset\"\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
        return;
    }
    if ($url['host'] === 'killed.test') {
        return;
    }
    if ($url['host'] === 'mute.test') {
        sleep(3600);
    }
    $secure = $url['scheme'] === 'https';
    $tls = ['peer_name' => $url['host'], 'verify_peer' => !str_contains($control, 'verify=?0'), 'verify_peer_name' => !str_contains($control, 'verify=?0')];
    foreach (['ca' => 'cafile', 'cert' => 'local_cert', 'key' => 'local_pk'] as $key => $option) {
        if (preg_match("/\\b{$key}=\"([^\"]+)\"/", $control, $found) === 1) {
            $tls[$option] = $found[1];
        }
    }
    $to = $url['host'] . ':' . ($url['port'] ?? ($secure ? 443 : 80));
    if (preg_match('/\bconnect-to="([^"]+)"/', $control, $found) === 1) {
        $to = $found[1];
    }
    $origin = @stream_socket_client(($secure ? 'ssl://' : 'tcp://') . $to, $errno, $error, 5, STREAM_CLIENT_CONNECT, stream_context_create(['ssl' => $tls]));
    if ($origin === false) {
        fwrite($client, "HTTP/1.1 502 Bad Gateway\r\nHearth-Declined: connect; errno=7; message=\"no connection\"\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
        return;
    }
    $path = ($url['path'] ?? '/') . (isset($url['query']) ? "?{$url['query']}" : '');
    fwrite($origin, "{$method} {$path} HTTP/1.1\r\nHost: {$authority}\r\n" . implode("\r\n", $kept) . "\r\nConnection: close\r\n\r\n{$body}");
    $timing = str_contains($control, 'timing=?1') ? "Hearth-Timing: dns=0, connect=0, tls=0, first-byte=19512, reused=?1, protocol=\"1.1\", address=\"{$to}\"\r\n" : '';
    relay($client, $origin, $timing);
}

/**
 * Copies bytes in both directions until the origin has ended, and adds a line to the final head. It never blocks on a write, because the peer may be
 * waiting until its own bytes are read.
 *
 * @param resource $client
 * @param resource $origin
 */
function relay($client, $origin, string $timing): void
{
    stream_set_blocking($client, false);
    stream_set_blocking($origin, false);
    $head = '';
    [$up, $down] = ['', ''];
    [$listening, $answering] = [true, true];
    while ($answering || $down !== '') {
        $readable = [...($listening && strlen($up) < 262144 ? [$client] : []), ...($answering && strlen($down) < 262144 ? [$origin] : [])];
        $writable = [...($up === '' ? [] : [$origin]), ...($down === '' ? [] : [$client])];
        $none = null;
        if (stream_select($readable, $writable, $none, 60) === 0) {
            return;
        }
        if (in_array($client, $readable, true)) {
            $piece = (string) @fread($client, 65536);
            $listening = $piece !== '' || !feof($client);
            $up .= $piece;
        }
        if (in_array($origin, $readable, true)) {
            $piece = (string) @fread($origin, 65536);
            $answering = $piece !== '' || !feof($origin);
            $down .= $head === null ? $piece : told($head, $piece, $timing);
        }
        foreach ([[$origin, &$up], [$client, &$down]] as [$to, &$waiting]) {
            if ($waiting !== '' && in_array($to, $writable, true)) {
                $written = @fwrite($to, substr($waiting, 0, 65536));
                if ($written === false && $to === $client) {
                    return;
                }
                // An origin that stops reading still answers.
                $waiting = $written === false ? '' : substr($waiting, $written);
            }
        }
        unset($waiting);
    }
}

/** What of the heads may go on; the final one with the timing. Null: the head is over. */
function told(?string &$head, string $piece, string $timing): string
{
    $head .= $piece;
    $ready = '';
    while ($head !== null && ($end = strpos($head, "\r\n\r\n")) !== false) {
        $one = substr($head, 0, $end + 2);
        $head = substr($head, $end + 4);
        $interim = preg_match('#^HTTP/1\.1 1#', $one) === 1;
        $ready .= $one . ($interim ? '' : $timing) . "\r\n";
        if (!$interim) {
            $ready .= $head;
            $head = null;
        }
    }
    return $ready;
}
