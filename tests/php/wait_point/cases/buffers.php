<?php

echo ob_get_level(), ' ';
ob_start(static fn (string $text, int $phase): string => "({$phase}:" . strrev($text) . ')');
echo 'inner';
ob_flush();
echo 'rest';
ob_start();
echo ' left open';
print_r(array_column(ob_get_status(true), 'level'));
header_register_callback(static function (): void {
    header('X-Callback: yes');
    header_remove('X-Boot');
});
