<?php
// Everything that PHP got about the request, as JSON. ?input also reads the raw body.
header('Content-Type: application/json');
$seen = [
    'server' => $_SERVER,
    'get' => $_GET,
    'post' => $_POST,
    'cookie' => $_COOKIE,
    'files' => $_FILES,
    'request' => $_REQUEST,
    'env' => $_ENV,
    'headers' => getallheaders(),
    'filter_method' => filter_input(INPUT_SERVER, 'REQUEST_METHOD'),
    'filter_get' => filter_input(INPUT_GET, 'a'),
    'getenv_method' => getenv('REQUEST_METHOD'),
    'getenv_proxy' => getenv('HTTP_PROXY'),
    'getenv_all' => getenv(),
    'sapi' => PHP_SAPI,
    'cwd' => getcwd(),
];
if (isset($_GET['input'])) {
    $seen['input'] = file_get_contents('php://input');
}
echo json_encode($seen, JSON_INVALID_UTF8_SUBSTITUTE | JSON_PRETTY_PRINT);
