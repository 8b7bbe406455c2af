<?php
// What the tests of images, manifests and the seccomp profile serve: a worker script that uses what applications use. No route leaves a file behind.

$boot = bin2hex(random_bytes(4));

$routes = [
    '/' => static fn (): string => "hello from {$boot}",
    // Longer than a drain takes to begin; the client says how long.
    '/slow' => static function (): string {
        usleep(1000 * (int) $_GET['milliseconds']);
        return 'slow but answered';
    },
    '/session' => static function (): string {
        session_start();
        $_SESSION['visits'] = ($_SESSION['visits'] ?? 0) + 1;
        return "visit {$_SESSION['visits']}";
    },
    '/files' => static function (): string {
        $file = tempnam(sys_get_temp_dir(), 'hearth');
        file_put_contents($file, str_repeat('x', 100_000), LOCK_EX);
        copy($file, "{$file}.copy") && rename("{$file}.copy", "{$file}.renamed") && touch("{$file}.renamed", 1) && chmod("{$file}.renamed", 0600);
        $size = filesize("{$file}.renamed");
        unlink($file) && unlink("{$file}.renamed");
        return "{$size} bytes, free: " . (disk_free_space('/tmp') > 0 ? 'some' : 'none') . ', here: ' . count(scandir(__DIR__) ?: []);
    },
    '/programs' => static function (): string {
        exec('ls -l /usr/bin/env && id -u && cat /proc/self/stat | wc -c', $lines, $status);
        return "exit status {$status}, " . count($lines) . ' lines';
    },
    '/network' => static function (): string {
        [$one, $other] = stream_socket_pair(STREAM_PF_UNIX, STREAM_SOCK_STREAM, 0);
        fwrite($one, 'x');
        $read = [$other];
        $none = null;
        $ready = stream_select($read, $none, $none, 1);
        $server = stream_socket_server('tcp://127.0.0.1:0');
        $udp = stream_socket_server('udp://127.0.0.1:0', $code, $text, STREAM_SERVER_BIND);
        return "{$ready} ready, " . gethostbyname('localhost') . ', ' . (is_resource($server) && is_resource($udp) ? 'bound' : 'not bound');
    },
    '/memory' => static fn (): string => strlen(str_repeat('x', 40_000_000)) . ' bytes, ' . count(range(1, 200_000)) . ' numbers',
    '/refused' => static fn (): string => 'root is ' . (@file_put_contents(__DIR__ . '/written', '1') === false ? 'read-only' : 'writable'),
    // A namespace of its own: what no application needs, and no profile should allow.
    '/namespace' => static function (): string {
        exec('unshare --user true 2>&1', $lines, $status);
        return $status === 0 ? 'made' : 'refused';
    },
];

$handler = static function () use ($routes): void {
    header('Content-Type: text/plain');
    $path = (string) parse_url($_SERVER['REQUEST_URI'], PHP_URL_PATH);
    echo isset($routes[$path]) ? $routes[$path]() : http_response_code(404);
};
while (frankenphp_handle_request($handler)) {
}
