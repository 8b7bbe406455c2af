<?php
// Runs into memory_limit.
ini_set('memory_limit', '8M');
echo 'before';
$all = [];
while (true) {
    $all[] = str_repeat('x', 100000);
}
