<?php

ksort($_FILES);
$files = array_map(static fn (array $file): array => [$file['name'], $file['type'], $file['error'], $file['size'], (string) @file_get_contents($file['tmp_name'])], $_FILES);
$names = ['REQUEST_METHOD', 'REQUEST_URI', 'QUERY_STRING', 'SCRIPT_NAME', 'SCRIPT_FILENAME', 'PHP_SELF', 'PATH_INFO', 'DOCUMENT_ROOT', 'SERVER_PROTOCOL',
    'REQUEST_SCHEME', 'CONTENT_TYPE', 'CONTENT_LENGTH', 'HTTP_X_ONE', 'HTTP_COOKIE', 'PHP_AUTH_USER', 'PHP_AUTH_PW', 'APP_COLOUR', 'HEARTH_WORKER', 'argv', 'argc'];
$server = [];
foreach ($names as $name) {
    $server[$name] = ($_SERVER[$name] ?? '') === '' ? null : $_SERVER[$name];
}
$own = static fn (): array => [$_GET, $_POST, $_COOKIE, $_REQUEST];
echo json_encode([$own(), $files, $server, $GLOBALS['_GET'] === $_GET, file_get_contents('php://input'), getenv('REQUEST_URI'), filter_input(INPUT_GET, 'case'),
    filter_input(INPUT_SERVER, 'REQUEST_URI'), filter_input(INPUT_POST, 'a'), getallheaders()['X-One'] ?? null, $_SERVER['REQUEST_TIME'] > 1_000_000_000,
    abs(time() - $_SERVER['REQUEST_TIME']) < 5, isset($_SESSION)], JSON_THROW_ON_ERROR);
