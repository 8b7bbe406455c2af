<?php

// Runs a test under php-cgi as the worker script does under Hearth: in a closure, so that its variables are not global.

declare(strict_types=1);

function phpt(): void
{
    require func_get_arg(0);
}

(static function (): void {
    $_SERVER['SCRIPT_NAME'] = $_SERVER['PHP_SELF'] = '';
    $_SERVER['SCRIPT_FILENAME'] = $_SERVER['PATH_TRANSLATED'] = $_SERVER['PHPT_SCRIPT'];
    chdir(dirname($_SERVER['SCRIPT_FILENAME']));
    phpt($_SERVER['SCRIPT_FILENAME']);
})();
