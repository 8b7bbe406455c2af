<?php

// Runs one test of php-src in this request, in the global scope, as php-cgi, `request`, `worker` and `snapshot` can all do it.
//
// A worker script calls a function, and a file that a function requires has that function's variables. The one way from a function to the global
// scope is an internal one: the callable is the method cases() of an enumeration, one of whose cases names a class that spl_autoload() loads.
// The loaded file, phptcase1.php, requires the test. The case itself (file, settings, environment, arguments) is in the file `case` beside this one.

declare(strict_types=1);

namespace Conformance;

final class Phpt
{
    public const ONCE = 'call_user_func';
    public const LOOP = 'hearth_handle_request';

    private static int $number = 0;

    /** The callable that runs the next test. */
    public static function next(): string
    {
        $number = ++self::$number;
        eval("enum PhptStart$number: int { case Only = PhptCase$number::DONE; }");
        spl_autoload_register();
        spl_autoload_extensions('.php');
        set_include_path(__DIR__ . '/cases');
        return "PhptStart$number::cases";
    }

    /** Prepares this request for the test, whose file it returns. */
    public static function begin(): string
    {
        spl_autoload_unregister('spl_autoload');
        spl_autoload_extensions('.inc,.php');
        ini_restore('include_path');
        $case = unserialize(file_get_contents(__DIR__ . '/case'));
        foreach (['HTTP_HOST', 'HTTP_CONNECTION', 'HTTP_CONTENT_LENGTH', 'HTTP_X_REQUEST_ID'] as $name) {
            unset($_SERVER[$name]);
        }
        foreach (array_keys($_SERVER) as $name) {
            if (str_starts_with($name, 'HEARTH_')) {
                unset($_SERVER[$name], $_ENV[$name]);
                putenv($name);
            }
        }
        foreach ($case['environment'] as $name => $value) {
            putenv("$name=$value");
            $_ENV[$name] = $_SERVER[$name] = $value;
        }
        $_SERVER['SCRIPT_FILENAME'] = $_SERVER['PATH_TRANSLATED'] = $case['file'];
        $_SERVER['SCRIPT_NAME'] = $_SERVER['PHP_SELF'] = $_SERVER['REQUEST_URI'] = $case['name'];
        $_SERVER['argv'] = $GLOBALS['argv'] = [$case['file'], ...$case['arguments']];
        $_SERVER['argc'] = $GLOBALS['argc'] = count($GLOBALS['argv']);
        chdir(__DIR__ . '/src');
        foreach ($case['settings'] as $name => $value) {
            @ini_set($name, $value);
        }
        error_clear_last();
        return $case['file'];
    }

    /** The class that spl_autoload() was to load. */
    public static function end(): void
    {
        $number = self::$number;
        eval("final class PhptCase$number { const DONE = 1; }");
    }
}
