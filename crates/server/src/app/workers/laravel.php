<?php

/*
 * Hearth's worker script for Laravel 8 and later: boots the application once, then answers requests.
 *
 * What happens after a request depends on the model:
 * - `worker`: Laravel's own state is restored: the container (bindings, instances, terminating callbacks), configuration, events, views,
 *   URLs, translations, log context, open transactions. The application's statics, globals and boot-time singletons are not restored.
 *   Database and Redis connections stay open.
 * - all others: nothing, because Hearth restores or ends the whole process. Before the first request, synthetic requests may warm up
 *   the application. After each of them, everything that the application itself has created is removed: instances, properties of its
 *   objects, its static properties, database and Redis connections. Classes, views, routes and OPcache stay warm.
 */

declare(strict_types=1);

use Hearth\Worker\ApplicationState;
use Hearth\Worker\Connectors;
use Hearth\Worker\Databases;
use Hearth\Worker\LaravelTermination;
use Hearth\Worker\SqliteFile;
use Illuminate\Contracts\Http\Kernel;
use Illuminate\Foundation\Bootstrap\LoadConfiguration;
use Illuminate\Foundation\Bootstrap\RegisterProviders;
use Illuminate\Foundation\Bootstrap\SetRequestForConsole;
use Illuminate\Http\Request;
use Illuminate\Support\Facades\Facade;
use Symfony\Component\HttpFoundation\Request as SymfonyRequest;
use Symfony\Component\HttpFoundation\Response;

(static function (): void {
    $folder = getenv('HEARTH_APP_DIR');
    if ($folder === false || !is_file($folder . '/bootstrap/app.php')) {
        throw new RuntimeException('HEARTH_APP_DIR names no Laravel application.');
    }
    $sharesState = (getenv('HEARTH_MODEL') ?: 'worker') === 'worker';
    chdir($folder . '/public');
    defined('LARAVEL_START') || define('LARAVEL_START', microtime(true));

    // A client that disconnects must not end the script, which serves other requests too.
    ignore_user_abort(true);

    require $folder . '/vendor/autoload.php';
    try {
        $app = require $folder . '/bootstrap/app.php';
        $kernel = $app->make(Kernel::class);

        // Service providers may need a request while they boot. They get the one for console commands, built from APP_URL.
        $app->instance('request', Request::create('http://localhost'));
        $app->beforeBootstrapping(RegisterProviders::class, static function ($app): void {
            (new SetRequestForConsole())->bootstrap($app);
        });
        require_once __DIR__ . '/connectors.php';
        $app->afterBootstrapping(LoadConfiguration::class, static fn ($app) => Connectors::ofLaravel($app->make('config')));
        $kernel->bootstrap();
    } catch (Throwable $reason) {
        // Laravel would try to render an error page, and fail, because views are not available yet.
        $where = '';
        require_once __DIR__ . '/databases.php';
        if ($reason instanceof PDOException && isset($app) && $app->bound('config')) {
            $config = $app->make('config');
            $name = $reason->connectionName ?? $config->get('database.default');
            $where = " (the database `$name`" . Databases::at($config->get("database.connections.$name")) . ')';
        }
        Databases::logFailure($reason, $where);
        exit(1);
    }

    // Services without request state, created once for all requests.
    $warm = [
        'cache', 'config', 'cookie', 'db', 'db.factory', 'encrypter', 'events', 'files', 'hash', 'log', 'redis', 'router',
        'routes', 'session', 'translator', 'url', 'view', 'view.engine.resolver', 'view.finder', 'blade.compiler',
    ];
    foreach ($warm as $name) {
        if ($app->bound($name)) {
            try {
                $app->make($name);
            } catch (Throwable) {
                // Not configured: a request that needs it fails with an error.
            }
        }
    }
    Facade::clearResolvedInstances();

    // The properties of these objects are restored after each request. The container comes last, so that instances which the others
    // create are removed too.
    $frozen = [];
    foreach (['config', 'cookie', 'events', 'log', 'router', 'session', 'translator', 'url', 'view'] as $name) {
        if ($app->resolved($name)) {
            $frozen[] = $app->make($name);
        }
    }
    $frozen[] = $kernel;
    $frozen[] = $app;
    hearth_remember_properties($frozen);

    $cleanUp = static function (?Request $request) use ($app): void {
        $route = $request?->route();
        if (is_object($route)) {
            // Route objects are shared by all requests: the last request's controller and parameters are removed.
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
        hearth_put_back_properties();
        Facade::clearResolvedInstances();
    };

    // Forks cannot use sockets that this process has opened.
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

    // PHP fills $_SERVER again for each request, without the values of .env.
    $environment = array_filter(
        array_intersect_key($_SERVER, $_ENV),
        static fn (int|string $name): bool => !str_starts_with((string) $name, 'HTTP_'),
        ARRAY_FILTER_USE_KEY,
    );
    hearth_add_server_variables($environment);

    require_once __DIR__ . '/laravel_termination.php';
    $termination = new LaravelTermination($app, $kernel);
    // A body that is made while it is sent may leave something to do.
    $owner = static fn (Response $response, string $method): string => (new ReflectionMethod($response, $method))->class;
    $answer = static function (Request $request, Response $response) use ($kernel, $termination, $owner): void {
        static $classes = [];
        [$sendsItself, $makesBody] = $classes[$response::class] ??= [
            $owner($response, 'send') !== Response::class,
            $owner($response, 'sendHeaders') !== Response::class || $owner($response, 'sendContent') !== Response::class,
        ];
        if ($sendsItself || !$termination->isEmpty($request)) {
            $response->send();
        } else {
            // The response and its end are sent in one frame: send() would announce work after the response.
            $response->sendHeaders();
            $response->sendContent();
            $isEmpty = !$makesBody || $termination->isEmpty($request);
            if ($isEmpty && $termination->mayBeLeftOut) {
                return;
            }
            if (!$isEmpty) {
                hearth_finish_request();
            }
        }
        $kernel->terminate($request, $response);
    };

    // Request::capture() fills each bag of a request twice. What else it does is for bodies, and for an application's own class of requests.
    // Up to Laravel 9 a request without a body has its query as its input, too.
    $sample = Request::createFromBase(SymfonyRequest::create('/?a=1'));
    $inputIsQuery = $sample->request === $sample->query;
    $factory = (static fn (): mixed => self::$requestFactory)->bindTo(null, SymfonyRequest::class);
    $capture = static function () use ($factory, $inputIsQuery): Request {
        $hasBody = !in_array($_SERVER['REQUEST_METHOD'] ?? '', ['GET', 'HEAD'], true)
            || ($_SERVER['CONTENT_TYPE'] ?? '') !== '' || ($_SERVER['HTTP_CONTENT_TYPE'] ?? '') !== '' || $_FILES !== [];
        if ($hasBody || $factory() !== null) {
            return Request::capture();
        }
        Request::enableHttpMethodParameterOverride();
        $request = new Request($_GET, $_POST, [], $_COOKIE, [], $_SERVER);
        if ($inputIsQuery) {
            $request->request = $request->query;
        }
        return $request;
    };

    $maintenance = $folder . '/storage/framework/maintenance.php';
    $request = null;
    $isWarmUp = false;
    $handle = static function () use ($kernel, $maintenance, $capture, $answer, &$request, &$isWarmUp): void {
        $isWarmUp = ($_SERVER['HEARTH_WARM_UP'] ?? '') === '1';
        // `artisan down --render` writes this page. It ends the script unless the visitor has the bypass cookie.
        if (is_file($maintenance)) {
            (static fn (): mixed => require $maintenance)();
        }
        $request = $capture();
        $answer($request, $kernel->handle($request));
    };

    if ($sharesState) {
        while (hearth_handle_request($handle)) {
            // Not in the handler, because exit() would skip it.
            $cleanUp($request);
            $request = null;
        }
        return;
    }

    require_once __DIR__ . '/application_state.php';
    $disconnect();
    // All instances except caches that depend on files only.
    $instances = (function (): array {
        $caches = ['blade.compiler', 'files', 'routes', 'view.engine.resolver', 'view.finder'];
        return array_filter(array_diff_key($this->instances, array_flip($caches)), is_object(...));
    })->call($app);
    $instances = array_map(static fn (object $object): array => [$object, ApplicationState::properties($object)], $instances);
    $state = new ApplicationState($folder, [$app->bootstrapPath('cache'), $app->storagePath()], []);
    $state->remember([$app, $kernel]);

    // In `fork` each request's process would have to log in.
    if (getenv('HEARTH_MODEL') === 'snapshot') {
        require_once __DIR__ . '/databases.php';
        require_once __DIR__ . '/sqlite_file.php';
        hearth_on_worker_start(static fn () => Databases::ofLaravel($app));
        hearth_on_worker_start(static fn () => SqliteFile::ofLaravel($app));
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
        // Garbage in cycles may include an open connection.
        gc_collect_cycles();
    }
})();
