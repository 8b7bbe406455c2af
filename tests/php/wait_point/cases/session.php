<?php

session_start();
$_SESSION['count'] = ($_SESSION['count'] ?? 0) + 1;
echo 'session ', $_SESSION['count'];
register_shutdown_function(static function (): void {
    $_SESSION['late'] = ($_SESSION['late'] ?? '') . 'x';
    echo ' late ', $_SESSION['late'];
});
