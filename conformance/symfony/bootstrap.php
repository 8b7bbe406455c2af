<?php
// Loads classes: Symfony's from the source that SUITE_SOURCE names, all others from Debian's packages. Both the tests and their applications use it.

error_reporting(E_ALL & ~E_DEPRECATED & ~E_USER_DEPRECATED);
spl_autoload_register(static function (string $class): void {
    $path = str_replace('\\', '/', $class) . '.php';
    foreach ([getenv('SUITE_SOURCE') . '/src/', '/usr/share/php/'] as $root) {
        if (is_file($root . $path)) {
            require $root . $path;
            return;
        }
    }
});
require_once getenv('SUITE_SOURCE') . '/src/Symfony/Contracts/Deprecation/function.php';
foreach (['Component/String/Resources/functions.php', 'Component/DependencyInjection/Loader/Configurator/functions.php'] as $file) {
    if (is_file($file = getenv('SUITE_SOURCE') . "/src/Symfony/$file")) {
        require_once $file;
    }
}
