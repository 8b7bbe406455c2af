<?php

/*
 * Bref's own runtimes, out of a copy that BREF names (with its vendor folder), unchanged.
 *
 *     php bref.php APPLICATION worker|fpm
 *
 * `worker`: its function runtime, which keeps the process, with the application as a handler of events. `fpm`: its php-fpm runtime, with one process. Bref tells its
 * authors of one call in a hundred; not here (BREF_PING_DISABLE).
 */

declare(strict_types=1);

use Bref\FpmRuntime\FpmHandler;
use Bref\Runtime\LambdaRuntime;

[, $name, $kind] = $argv;
require __DIR__ . '/runtime.php';
require getenv('BREF') . '/vendor/autoload.php';
$_SERVER['BREF_PING_DISABLE'] = '1';

$runtime = LambdaRuntime::fromEnvironmentVariable($kind === 'worker' ? 'function' : 'fpm');
if ($kind === 'worker') {
    $handler = handler($name);
} else {
    $work = sys_get_temp_dir() . '/bref-' . getmypid();
    mkdir($work);
    // It starts `php-fpm`; Debian's has the version in its name, and root must say so.
    $version = PHP_MAJOR_VERSION . '.' . PHP_MINOR_VERSION;
    file_put_contents("{$work}/php-fpm", "#!/bin/sh\nexec setpriv --pdeathsig TERM php-fpm{$version} --allow-to-run-as-root \"\$@\"\n");
    chmod("{$work}/php-fpm", 0o755);
    putenv("PATH={$work}:" . getenv('PATH'));
    $user = posix_geteuid() === 0 ? "user = root\n" : '';
    file_put_contents("{$work}/fpm.conf", "[global]\nerror_log = /dev/stderr\n[www]\n{$user}listen = /tmp/.bref/php-fpm.sock\npm = static\npm.max_children = 1\nclear_env = no\n");
    $root = dirname(__DIR__, 3);
    $folder = $name === 'echo' ? "{$root}/bench/models/echo/public" : "{$root}/examples/symfony-api/public";
    putenv("LAMBDA_TASK_ROOT={$folder}");
    chdir($folder);
    $handler = new FpmHandler('index.php', "{$work}/fpm.conf");
    $handler->start();
}
while ($runtime->processNextEvent($handler)) {
}
