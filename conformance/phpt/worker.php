<?php

// The application of the models that boot ahead: each request is a test, whose file the path names. Run in a function: see
// in_a_function.php.

declare(strict_types=1);

function phpt(): void
{
    require func_get_arg(0);
}

while (
    hearth_handle_request(static function (): void {
        $_SERVER['SCRIPT_NAME'] = $_SERVER['PHP_SELF'] = preg_replace('/\.php\K.*/s', '', $_SERVER['REQUEST_URI']);
        $_SERVER['SCRIPT_FILENAME'] = $_SERVER['DOCUMENT_ROOT'] . $_SERVER['SCRIPT_NAME'];
        chdir(dirname($_SERVER['SCRIPT_FILENAME']));
        phpt($_SERVER['SCRIPT_FILENAME']);
    })
) {
}
