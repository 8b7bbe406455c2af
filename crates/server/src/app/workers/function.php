<?php

/*
 * Hearth's worker script for functions: loads the file that HEARTH_FUNCTION names, once, and calls its return value with each event. In models that boot
 * nothing ahead, it is the script of each request, and does both.
 *
 * Kinds of functions and their responses: function_runner.php. The contract with the server: docs/internals/lambda.md.
 */

declare(strict_types=1);

use Hearth\Worker\FunctionRunner;

require_once __DIR__ . '/invalid_invocation.php';
require_once __DIR__ . '/function_runner.php';

(static function (): void {
    $file = (string) getenv('HEARTH_FUNCTION');
    $folder = (string) getenv('HEARTH_APP_DIR');
    // Lambda decides when the invocation ends; no client can disconnect earlier.
    ignore_user_abort(true);
    chdir($folder);

    $runner = new FunctionRunner($file, $folder);
    if (!in_array(getenv('HEARTH_MODEL'), ['worker', 'prespawn', 'fork', 'snapshot'], true)) {
        $runner->serve();
        return;
    }
    $runner->boot();
    while (hearth_handle_request($runner->serve(...))) {
        gc_collect_cycles();
    }
})();
