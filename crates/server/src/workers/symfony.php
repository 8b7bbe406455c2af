<?php

/*
 * Hearth's worker script for Symfony 5.4 and later: boots the kernel once and answers requests in a loop.
 *
 * The model `worker` shares state between requests, on purpose: that is what makes it fast. Services that Symfony knows how to
 * reset (tag `kernel.reset`, interface ResetInterface) are reset after each request. Statics, globals and other services keep
 * what a request left in them. The models `request` (and later `snapshot`) isolate requests fully.
 *
 * The kernel is App\Kernel. APP_ENV and APP_DEBUG come from the environment or .env; without either it is `prod`, debug off.
 */

declare(strict_types=1);

use Symfony\Component\Dotenv\Dotenv;
use Symfony\Component\ErrorHandler\Debug;
use Symfony\Component\HttpFoundation\Request;
use Symfony\Component\HttpKernel\KernelInterface;
use Symfony\Component\HttpKernel\TerminableInterface;

(static function (): void {
    $folder = getenv('HEARTH_APP_DIR');
    if ($folder === false || !is_file($folder . '/vendor/autoload.php')) {
        throw new RuntimeException('HEARTH_APP_DIR names no application with vendor/autoload.php; run `composer install` in it.');
    }
    chdir($folder . '/public');

    // A client that goes away must not end the script: the next request is not its fault.
    ignore_user_abort(true);

    require $folder . '/vendor/autoload.php';
    if (class_exists(Dotenv::class) && (is_file($folder . '/.env') || is_file($folder . '/.env.local.php'))) {
        (new Dotenv())->bootEnv($folder . '/.env');
    }
    $env = (string) ($_SERVER['APP_ENV'] ?? $_ENV['APP_ENV'] ?? 'prod');
    $debug = filter_var($_SERVER['APP_DEBUG'] ?? $_ENV['APP_DEBUG'] ?? $env !== 'prod', FILTER_VALIDATE_BOOLEAN);
    if ($debug) {
        umask(0000);
        if (class_exists(Debug::class)) {
            Debug::enable();
        }
    }

    $class = 'App\\Kernel';
    if (!is_a($class, KernelInterface::class, true)) {
        throw new RuntimeException('There is no App\\Kernel; write a worker script of your own and name it with --worker-script.');
    }
    $kernel = new $class($env, $debug);
    $kernel->boot();

    // Values of .env live in $_SERVER too, which each request gets anew.
    $environment = array_filter(
        array_intersect_key($_SERVER, $_ENV),
        static function ($name): bool {
            return strncmp((string) $name, 'HTTP_', 5) !== 0;
        },
        ARRAY_FILTER_USE_KEY,
    );

    $handle = static function () use ($kernel, $environment): void {
        $_SERVER += $environment;
        $request = Request::createFromGlobals();
        $response = $kernel->handle($request);
        $response->send();
        if ($kernel instanceof TerminableInterface) {
            $kernel->terminate($request, $response);
        }
        // Kernel::boot() resets services when a request has gone before: now, while the client has its answer already.
        $kernel->boot();
    };

    while (hearth_handle_request($handle)) {
    }
})();
