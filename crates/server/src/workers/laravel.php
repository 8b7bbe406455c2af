<?php

/*
 * Hearth's worker script for Laravel 8 and later: boots the application once and answers requests in a loop.
 *
 * The model `worker` shares state between requests, on purpose: that is what makes it fast. This script puts back what Laravel
 * itself keeps per request: the container (bindings, instances, terminating callbacks), configuration, events, views, URLs,
 * translations, log context, open transactions. It cannot put back what the application keeps in statics, globals and
 * singletons made while it booted. The models `request` (and later `snapshot`) isolate requests fully.
 *
 * Database and Redis connections stay open between requests.
 */

declare(strict_types=1);

use Illuminate\Contracts\Http\Kernel;
use Illuminate\Http\Request;
use Illuminate\Support\Facades\Facade;

(static function (): void {
    $folder = getenv('HEARTH_APP_DIR');
    if ($folder === false || !is_file($folder . '/bootstrap/app.php')) {
        throw new RuntimeException('HEARTH_APP_DIR names no Laravel application.');
    }
    chdir($folder . '/public');
    defined('LARAVEL_START') || define('LARAVEL_START', microtime(true));

    // A client that goes away must not end the script: the next request is not its fault.
    ignore_user_abort(true);

    require $folder . '/vendor/autoload.php';
    $app = require $folder . '/bootstrap/app.php';
    $kernel = $app->make(Kernel::class);

    // Service providers may ask for the request while they boot; there is none yet.
    $app->instance('request', Request::create('http://localhost'));
    $kernel->bootstrap();

    // Made once and free of request state, so each request finds them ready.
    $warm = [
        'cache', 'config', 'cookie', 'db', 'db.factory', 'encrypter', 'events', 'files', 'hash', 'log', 'redis', 'router',
        'routes', 'session', 'translator', 'url', 'view', 'view.engine.resolver', 'view.finder', 'blade.compiler',
    ];
    foreach ($warm as $name) {
        if ($app->bound($name)) {
            try {
                $app->make($name);
            } catch (Throwable) {
                // Not configured: the request that needs it will say so.
            }
        }
    }
    Facade::clearResolvedInstances();

    // What a request changes in these objects is undone: their properties are put back as they are now. Arrays are copied only
    // when a request writes to them. The container comes last, so that it forgets what the others made.
    $properties = static function (object $object): array {
        return (function (): array {
            return get_object_vars($this);
        })->call($object);
    };
    $frozen = [];
    foreach (['config', 'cookie', 'events', 'log', 'router', 'session', 'translator', 'url', 'view'] as $name) {
        if ($app->resolved($name)) {
            $object = $app->make($name);
            $frozen[] = [$object, $properties($object)];
        }
    }
    $frozen[] = [$kernel, $properties($kernel)];
    $frozen[] = [$app, $properties($app)];

    $putBack = static function () use ($frozen): void {
        foreach ($frozen as [$object, $values]) {
            (function () use ($values): void {
                foreach ($values as $name => $value) {
                    $this->{$name} = $value;
                }
            })->call($object);
        }
        Facade::clearResolvedInstances();
    };

    $cleanUp = static function (?Request $request) use ($app, $putBack): void {
        $route = $request === null ? null : $request->route();
        if (is_object($route) && method_exists($route, 'flushController')) {
            $route->flushController();
        }
        if ($app->resolved('db')) {
            foreach ($app->make('db')->getConnections() as $connection) {
                if ($connection->transactionLevel() > 0) {
                    try {
                        $connection->rollBack(0);
                    } catch (Throwable) {
                        $connection->disconnect();
                    }
                }
                $connection->flushQueryLog();
                if (method_exists($connection, 'forgetRecordModificationState')) {
                    $connection->forgetRecordModificationState();
                }
            }
        }
        foreach ($app->make('log')->getChannels() as $channel) {
            if (method_exists($channel, 'withoutContext')) {
                $channel->withoutContext();
            }
        }
        if (method_exists(Illuminate\Support\Str::class, 'flushCache')) {
            Illuminate\Support\Str::flushCache();
        }
        if (class_exists(Illuminate\Support\Once::class, false)) {
            Illuminate\Support\Once::flush();
        }
        $putBack();
    };

    // Values of .env live in $_SERVER too, which each request gets anew.
    $environment = array_filter(
        array_intersect_key($_SERVER, $_ENV),
        static function ($name): bool {
            return strncmp((string) $name, 'HTTP_', 5) !== 0;
        },
        ARRAY_FILTER_USE_KEY,
    );

    $handle = static function () use ($kernel, $cleanUp, $environment): void {
        $_SERVER += $environment;
        $request = null;
        try {
            $request = Request::capture();
            $response = $kernel->handle($request);
            $response->send();
            $kernel->terminate($request, $response);
        } finally {
            $cleanUp($request);
        }
    };

    while (hearth_handle_request($handle)) {
    }
})();
