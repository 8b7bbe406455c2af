<?php

declare(strict_types=1);

require __DIR__ . '/../src/page.php';

$path = (string) parse_url($_SERVER['REQUEST_URI'], PHP_URL_PATH);
$links = '';
foreach (['hello.php', 'upload.php', 'stream.php', 'session.php'] as $script) {
    $links .= "<li><a href=\"/{$script}\">/{$script}</a></li>";
}

page(
    $path === '/' ? 'Plain PHP, kept warm' : 'You asked for ' . rawurldecode($path),
    "<ul>{$links}</ul><p>PHP " . PHP_VERSION . ' answered ' . e($_SERVER['REQUEST_METHOD'])
        . ' in process <code>' . getmypid() . '</code>.</p>',
);
