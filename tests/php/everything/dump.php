<?php
// All that a script can find out about its request, as JSON; bytes that are not UTF-8 as \xNN.
return static function (): void {
    $headers = getallheaders();
    ksort($headers);
    $files = $_FILES;
    array_walk_recursive($files, static function (mixed &$value, string $key): void {
        if (is_string($value) && str_starts_with($value, sys_get_temp_dir() . '/php')) {
            $value = is_uploaded_file($value) ? 'sha256 ' . hash_file('sha256', $value) : 'no upload';
        }
    });
    $seen = [
        '$_SERVER' => $_SERVER, '$_GET' => $_GET, '$_POST' => $_POST, '$_COOKIE' => $_COOKIE, '$_FILES' => $files,
        '$_REQUEST' => $_REQUEST, '$_ENV' => $_ENV,
        'php://input' => file_get_contents('php://input'),
        'getallheaders()' => $headers,
        'getenv(name)' => array_map(getenv(...), array_combine($names = array_keys($_SERVER), $names)),
        'getenv()' => getenv(),
        'filter_input()' => [filter_input(INPUT_GET, 'a'), filter_input(INPUT_SERVER, 'REQUEST_METHOD')],
        'working directory' => basename(getcwd()),
        'headers_list()' => headers_list(),
        'last error' => error_get_last()['message'] ?? null,
    ];
    array_walk_recursive($seen, static function (mixed &$value): void {
        if (is_string($value) && !mb_check_encoding($value, 'UTF-8')) {
            $value = preg_replace_callback('/[\x80-\xff]/', static fn (array $byte): string => '\x' . bin2hex($byte[0]), $value);
        }
    });
    header('Content-Type: application/json');
    echo json_encode($seen, JSON_THROW_ON_ERROR | JSON_INVALID_UTF8_SUBSTITUTE);
};
