<?php

function counts(): int
{
    static $count = 0;
    return ++$count;
}

echo counts(), counts(), ' ', defined('LEFT') ? 'defined' : 'new', ' ', getenv('LEFT') === false ? 'clean' : 'left';
define('LEFT', 1);
class_alias(Fixture\Witness::class, 'LeftClass');
spl_autoload_register(static function (string $class): void {
    echo "[autoload {$class}]";
});
var_dump(class_exists('Missing'));
$stream = null;
$application = null;
