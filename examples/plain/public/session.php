<?php

declare(strict_types=1);

require __DIR__ . '/../src/page.php';

session_start(['cookie_httponly' => true, 'cookie_samesite' => 'Lax']);
$_SESSION['visits'] = ($_SESSION['visits'] ?? 0) + 1;

page('Session', "<p>Visits: {$_SESSION['visits']}</p>");
