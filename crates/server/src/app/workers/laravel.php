<?php

/*
 * Hearth's worker script for Laravel 8 and later: boots the application once, then answers requests.
 *
 * What happens after a request depends on the model:
 * - `worker`: what Laravel itself keeps per request is put back: the container (bindings, instances, terminating callbacks),
 *   configuration, events, views, URLs, translations, log context, open transactions. It cannot put back what the application keeps in
 *   statics, globals and singletons made while it booted. Database and Redis connections stay open.
 * - all others: nothing, because Hearth puts the whole process back, or ends it. Before that they may be asked synthetic requests, to
 *   warm up what real ones will need. After each of those everything that the application itself has made goes again: instances,
 *   properties of its objects, its static properties, database and Redis connections. Classes, views, routes, opcache stay warm.
 */

declare(strict_types=1);

use Hearth\Worker\ApplicationState;
use Hearth\Worker\Connectors;
use Hearth\Worker\Databases;
use Hearth\Worker\LaravelTermination;
use Illuminate\Contracts\Http\Kernel;
use Illuminate\Foundation\Bootstrap\LoadConfiguration;
use Illuminate\Foundation\Bootstrap\RegisterProviders;
use Illuminate\Foundation\Bootstrap\SetRequestForConsole;
use Illuminate\Http\Request;
use Illuminate\Support\Facades\Facade;
use Symfony\Component\HttpFoundation\Response;

(static function (): void {
    $folder = getenv('HEARTH_APP_DIR');
    if ($folder === false || !is_file($folder . '/bootstrap/app.php')) {
        throw new RuntimeException('HEARTH_APP_DIR names no Laravel application.');
    }
    $sharesState = (getenv('HEARTH_MODEL') ?: 'worker') === 'worker';
    chdir($folder . '/public');
    defined('LARAVEL_START') || define('LARAVEL_START', microtime(true));

    // A client that goes away must not end the script: the next request is not its fault.
    ignore_user_abort(true);

    require $folder . '/vendor/autoload.php';
    try {
        $app = require $folder . '/bootstrap/app.php';
        $kernel = $app->make(Kernel::class);

        // Service providers may ask for the request while they boot. There is none yet: they get a command's, made of APP_URL.
        $app->instance('request', Request::create('http://localhost'));
        $app->beforeBootstrapping(RegisterProviders::class, static function ($app): void {
            (new SetRequestForConsole())->bootstrap($app);
        });
        require_once __DIR__ . '/connectors.php';
        $app->afterBootstrapping(LoadConfiguration::class, static fn ($app) => Connectors::ofLaravel($app->make('config')));
        $kernel->bootstrap();
    } catch (Throwable $reason) {
        // Laravel would render a page for it, and fail at that too, because views are among what is not there yet.
        do {
            error_log(sprintf('%s: %s in %s:%d', $reason::class, $reason->getMessage(), $reason->getFile(), $reason->getLine()));
        } while ($reason = $reason->getPrevious());
        exit(1);
    }

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
    $frozen = [];
    foreach (['config', 'cookie', 'events', 'log', 'router', 'session', 'translator', 'url', 'view'] as $name) {
        if ($app->resolved($name)) {
            $frozen[] = $app->make($name);
        }
    }
    $frozen[] = $kernel;
    $frozen[] = $app;
    $properties = static fn (object $object): array => (fn (): array => get_object_vars($this))->call($object);
    $frozen = array_map(static fn (object $object): array => [$object, $properties($object)], $frozen);

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
        $route = $request?->route();
        if (is_object($route)) {
            // A route belongs to all requests; what it knows of the last one goes.
            if (method_exists($route, 'flushController')) {
                $route->flushController();
            }
            $route->controller = null;
            $route->parameters = null;
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

    // Sockets that this process has opened are of no use in its forks.
    $disconnect = static function () use ($app): void {
        if ($app->resolved('db')) {
            foreach (array_keys($app->make('db')->getConnections()) as $name) {
                $app->make('db')->purge($name);
            }
        }
        if ($app->resolved('redis') && method_exists($redis = $app->make('redis'), 'connections')) {
            foreach (array_keys($redis->connections() ?? []) as $name) {
                $redis->purge($name);
            }
        }
    };

    // Values of .env are in $_SERVER too, which PHP fills again for each request.
    $environment = array_filter(
        array_intersect_key($_SERVER, $_ENV),
        static fn (int|string $name): bool => !str_starts_with((string) $name, 'HTTP_'),
        ARRAY_FILTER_USE_KEY,
    );

    require_once __DIR__ . '/laravel_termination.php';
    $termination = new LaravelTermination($app, $kernel);
    // A body that is made while it is sent may leave something to do.
    $answer = static function (Request $request, Response $response) use ($kernel, $termination): void {
        static $sendsItself = [];
        $isOwn = $sendsItself[$response::class] ??= (new ReflectionMethod($response, 'send'))->class !== Response::class;
        if ($isOwn || !$termination->isEmpty($request)) {
            $response->send();
        } else {
            // The answer and its end leave in one piece: send() would say first that work goes on behind it.
            $response->sendHeaders();
            $response->sendContent();
            if ($termination->isEmpty($request)) {
                return;
            }
            hearth_finish_request();
        }
        $kernel->terminate($request, $response);
    };

    $maintenance = $folder . '/storage/framework/maintenance.php';
    $request = null;
    $isWarmUp = false;
    $handle = static function () use ($kernel, $environment, $maintenance, $answer, &$request, &$isWarmUp): void {
        $isWarmUp = ($_SERVER['HEARTH_WARM_UP'] ?? '') === '1';
        if ($environment !== []) {
            $_SERVER += $environment;
        }
        // `artisan down --render` has put a page there, which ends the script unless the visitor may pass.
        if (is_file($maintenance)) {
            (static fn (): mixed => require $maintenance)();
        }
        $request = Request::capture();
        $answer($request, $kernel->handle($request));
    };

    if ($sharesState) {
        while (hearth_handle_request($handle)) {
            // Here and not in the handler: exit() leaves that one early.
            $cleanUp($request);
            $request = null;
        }
        return;
    }

    require_once __DIR__ . '/application_state.php';
    $disconnect();
    // All instances, but for caches of what depends on files alone.
    $instances = (function (): array {
        $caches = ['blade.compiler', 'files', 'routes', 'view.engine.resolver', 'view.finder'];
        return array_filter(array_diff_key($this->instances, array_flip($caches)), is_object(...));
    })->call($app);
    $instances = array_map(static fn (object $object): array => [$object, ApplicationState::properties($object)], $instances);
    $state = new ApplicationState($folder, [$app->bootstrapPath('cache'), $app->storagePath()], []);
    $state->remember([$app, $kernel]);

    // The fork that a request ends would have to log in as well.
    if (getenv('HEARTH_MODEL') === 'snapshot') {
        require_once __DIR__ . '/databases.php';
        hearth_on_worker_start(static fn () => Databases::ofLaravel($app));
    }

    while (hearth_handle_request($handle)) {
        if (!$isWarmUp) {
            continue;
        }
        $disconnect();
        $cleanUp($request);
        $request = null;
        foreach ($instances as [$object, $values]) {
            ApplicationState::putBackProperties($object, $values);
        }
        $state->putBack([$app, $kernel]);
        // What only cycles hold may be an open connection.
        gc_collect_cycles();
    }
})();
