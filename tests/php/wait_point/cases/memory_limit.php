<?php

register_shutdown_function(static function (): void {
    echo '[after the limit]';
});
ini_set('memory_limit', '32M');
$all = [];
while (true) {
    $all[] = str_repeat('x', 1 << 20);
}
