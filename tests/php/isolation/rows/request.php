<?php

declare(strict_types=1);

// State that belongs to one request by its nature.
Row::$current = 'The request';

foreach (['_GET', '_POST', '_COOKIE', '_FILES', '_REQUEST', '_SERVER', '_ENV'] as $name) {
    Row::add('$' . $name, fn () => $GLOBALS[$name]['left_behind'] = 'yes', fn () => $GLOBALS[$name]['left_behind'] ?? null);
}
// The test sends these with each damage, and with no look.
Row::add('input of the request', fn () => null, fn () => [
    $_GET['left'] ?? null,
    $_POST['left'] ?? null,
    $_COOKIE['left'] ?? null,
    $_SERVER['HTTP_X_LEFT'] ?? null,
    filter_input(INPUT_GET, 'left'),
    filter_input(INPUT_POST, 'left'),
    filter_input(INPUT_COOKIE, 'left'),
    filter_input(INPUT_SERVER, 'HTTP_X_LEFT'),
    getenv('HTTP_X_LEFT'),
    file_get_contents('php://input'),
    getallheaders()['X-Left'] ?? null,
]);
Row::add('output buffers', function (): void {
    ob_start();
    ob_start(static fn (string $text): string => strtoupper($text));
    echo 'left';
}, fn () => ob_get_level());
Row::add('output_add_rewrite_var()', fn () => output_add_rewrite_var('left', '1'), fn () => ob_list_handlers());
Row::add('header fields', function (): void {
    header('X-Left: behind');
    setcookie('left', 'behind');
}, fn () => array_values(preg_grep('/^X-Powered-By/', headers_list(), PREG_GREP_INVERT)));
Row::add('status', fn () => http_response_code(202), fn () => http_response_code(), status: 202);
Row::add('session', function (): void {
    session_start();
    $_SESSION['left'] = 'behind';
}, fn () => [session_id() !== '', session_status(), $_SESSION ?? null], able: function_exists('session_start'));
Row::add('settings of the session', function (): void {
    session_name('left');
    session_set_cookie_params(17, '/left');
    session_cache_limiter('public');
    session_module_name('files');
}, fn () => [session_name(), session_get_cookie_params()['path'], session_cache_limiter()], able: function_exists('session_name'));
Row::add('session handler', fn () => session_set_save_handler(new SessionHandler(), true), fn () => [session_module_name(), ini_get('session.save_handler')], able: function_exists('session_set_save_handler'));
