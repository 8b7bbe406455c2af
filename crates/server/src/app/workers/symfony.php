<?php

/*
 * Hearth's worker script for Symfony 5.4 and later: boots the kernel once, then answers requests.
 *
 * The kernel is the return value of the closure in a Runtime-style public/index.php, else App\Kernel. The environment and debug mode come
 * from environment variables or .env, as the Runtime component reads them. The default is `prod` without debug mode.
 *
 * What happens after a request depends on the model:
 * - `worker`: Symfony resets its services (tag `kernel.reset`). Statics, globals and other services keep the request's changes.
 * - all others: nothing, because Hearth restores or ends the whole process. Before the first request, synthetic requests may warm up
 *   the application. After each of them, everything that the application itself has created is removed: services of its own classes,
 *   services that refer to one, its static properties, open connections. Services of packages stay, and are reset by Symfony's
 *   contract for long-running processes.
 */

declare(strict_types=1);

use Hearth\Worker\ApplicationState;
use Hearth\Worker\Connectors;
use Hearth\Worker\Databases;
use Hearth\Worker\SqliteFile;
use Symfony\Component\DependencyInjection\Container;
use Symfony\Component\Dotenv\Dotenv;
use Symfony\Component\ErrorHandler\Debug;
use Symfony\Component\HttpFoundation\Request;
use Symfony\Component\HttpFoundation\Response;
use Symfony\Component\HttpKernel\HttpKernel;
use Symfony\Component\HttpKernel\HttpKernelInterface;
use Symfony\Component\HttpKernel\Kernel;
use Symfony\Component\HttpKernel\KernelInterface;
use Symfony\Component\HttpKernel\TerminableInterface;

(static function (): void {
    $folder = getenv('HEARTH_APP_DIR');
    if ($folder === false || !is_file($folder . '/vendor/autoload.php')) {
        throw new RuntimeException('HEARTH_APP_DIR names no application with vendor/autoload.php; run `composer install` in it.');
    }
    $sharesState = (getenv('HEARTH_MODEL') ?: 'worker') === 'worker';
    chdir($folder . '/public');

    // A client that disconnects must not end the script, which serves other requests too.
    ignore_user_abort(true);

    require $folder . '/vendor/autoload.php';

    // Options of the Runtime component, at the place where applications keep them.
    $composer = is_file($folder . '/composer.json') ? json_decode((string) file_get_contents($folder . '/composer.json'), true) : null;
    $options = $composer['extra']['runtime'] ?? [];
    $envName = $options['env_var_name'] ?? 'APP_ENV';
    $debugName = $options['debug_var_name'] ?? 'APP_DEBUG';
    $dotenv = $folder . '/' . ($options['dotenv_path'] ?? '.env');
    if (!($options['disable_dotenv'] ?? false) && class_exists(Dotenv::class) && (is_file($dotenv) || is_file($dotenv . '.local.php'))) {
        (new Dotenv($envName, $debugName))
            ->setProdEnvs((array) ($options['prod_envs'] ?? ['prod']))
            ->usePutenv($options['use_putenv'] ?? false)
            ->bootEnv($dotenv, 'dev', (array) ($options['test_envs'] ?? ['test']), $options['dotenv_overload'] ?? false);
    }
    $env = (string) ($_SERVER[$envName] ?? $_ENV[$envName] ?? 'prod');
    $isProd = in_array($env, (array) ($options['prod_envs'] ?? ['prod']), true);
    $debug = filter_var($_SERVER[$debugName] ?? $_ENV[$debugName] ?? !$isProd, FILTER_VALIDATE_BOOLEAN);
    $_SERVER[$envName] = $_ENV[$envName] = $env;
    $_SERVER[$debugName] = $_ENV[$debugName] = $debug ? '1' : '0';
    if ($debug) {
        umask(0000);
        if (class_exists(Debug::class)) {
            Debug::enable();
        }
    }

    $frontController = $folder . '/public/index.php';
    // Composer's autoloader is already loaded, so autoload_runtime.php returns the closure without running it.
    $entrance = is_file($frontController) && str_contains((string) file_get_contents($frontController), 'autoload_runtime.php')
        ? (static fn (): mixed => require $frontController)()
        : null;
    if ($entrance instanceof Closure) {
        $parameters = (new ReflectionFunction($entrance))->getParameters();
        $takesContext = count($parameters) === 1 && (string) $parameters[0]->getType() === 'array';
        $entrance = $parameters === [] || $takesContext ? $entrance($_SERVER + $_ENV) : null;
    }
    $kernel = $entrance;
    // A reverse proxy such as HttpCache around the kernel.
    while ($kernel instanceof HttpKernelInterface && !$kernel instanceof KernelInterface && method_exists($kernel, 'getKernel')) {
        $kernel = $kernel->getKernel();
    }
    if (!$kernel instanceof KernelInterface) {
        $class = 'App\\Kernel';
        if (!is_a($class, KernelInterface::class, true)) {
            throw new RuntimeException('There is no App\\Kernel; write a worker script of your own and name it with --worker-script.');
        }
        $entrance = $kernel = new $class($env, $debug);
    }
    try {
        $kernel->boot();
    } catch (Throwable $reason) {
        require_once __DIR__ . '/databases.php';
        $database = Databases::unreachableOfSymfony($reason, $kernel);
        if ($database === '') {
            throw $reason;
        }
        Databases::logFailure($reason, $database);
        exit(1);
    }
    $container = $kernel->getContainer();
    require_once __DIR__ . '/connectors.php';
    Connectors::ofSymfony($container);
    if ($entrance === $kernel && !property_exists(Kernel::class, 'handlingHttpCache') && $container->has('http_cache')) {
        // Up to Symfony 6.1, a kernel that is booted before its first request loses its HTTP cache.
        $entrance = $container->get('http_cache');
    }

    // Services that every request needs and that constructors alone create.
    $dispatcher = $container->has('event_dispatcher') ? $container->get('event_dispatcher') : null;
    $httpKernel = $container->has('http_kernel') ? $container->get('http_kernel') : null;
    if ($container->has('router') && method_exists($router = $container->get('router'), 'getMatcher')) {
        $router->getMatcher();
    }

    // PHP fills $_SERVER again for each request, without the values of .env.
    $environment = array_filter(
        array_intersect_key($_SERVER, $_ENV),
        static fn (int|string $name): bool => !str_starts_with((string) $name, 'HTTP_'),
        ARRAY_FILTER_USE_KEY,
    );
    hearth_add_server_variables($environment);

    // Symfony's own kernel terminates by an event. Without a listener, the response and its end can be sent in one frame: send() would
    // announce work after the response.
    $terminates = static function (string $class): string {
        return method_exists($class, 'terminate') ? (new ReflectionMethod($class, 'terminate'))->class : '';
    };
    $endsByEvent = $entrance === $kernel && $terminates($kernel::class) === Kernel::class && $httpKernel !== null
        && $terminates($httpKernel::class) === HttpKernel::class && $dispatcher !== null;
    // Up to Symfony 7 the event is all that terminate() is.
    $isOnlyEvent = $endsByEvent && Kernel::MAJOR_VERSION <= 7;
    $answer = static function (Request $request, Response $response) use ($entrance, $endsByEvent, $isOnlyEvent, $dispatcher): void {
        static $sendsItself = [];
        $isOwn = $sendsItself[$response::class] ??= (new ReflectionMethod($response, 'send'))->class !== Response::class;
        if ($isOwn || !$endsByEvent || $dispatcher->hasListeners('kernel.terminate')) {
            $response->send();
        } else {
            $response->sendHeaders();
            $response->sendContent();
            // A body that is made while it is sent may have added a listener.
            $listens = $dispatcher->hasListeners('kernel.terminate');
            if ($isOnlyEvent && !$listens) {
                return;
            }
            if ($listens) {
                hearth_finish_request();
            }
        }
        if ($entrance instanceof TerminableInterface) {
            $entrance->terminate($request, $response);
        }
    };

    // All that Request::createFromGlobals() does for these methods, unless the application has a class of requests of its own.
    $factory = (static fn (): mixed => self::$requestFactory)->bindTo(null, Request::class);

    $complete = true;
    $isWarmUp = false;
    $files = [];
    $handle = static function () use ($entrance, $factory, $answer, &$complete, &$isWarmUp, &$files): void {
        $complete = false;
        $isWarmUp = ($_SERVER['HEARTH_WARM_UP'] ?? '') === '1';
        foreach ($files as $file) {
            $file->reopenIfReplaced();
        }
        $request = $factory() === null && in_array($_SERVER['REQUEST_METHOD'] ?? '', ['GET', 'HEAD', 'POST'], true)
            ? new Request($_GET, $_POST, [], $_COOKIE, $_FILES, $_SERVER)
            : Request::createFromGlobals();
        $answer($request, $entrance->handle($request));
        $complete = true;
    };

    // After exit() in a request the kernel and the request stack believe that they still serve it.
    $forget = static function () use ($kernel, $container): void {
        if ($kernel instanceof Kernel) {
            (function (): void {
                $this->requestStackSize = 0;
                $this->resetServices = true;
            })->bindTo($kernel, Kernel::class)();
        }
        if ($container->has('request_stack')) {
            while ($container->get('request_stack')->pop() !== null) {
            }
        }
    };

    if ($sharesState) {
        while (hearth_handle_request($handle)) {
            if (!$complete) {
                $forget();
            }
            // Kernel::boot() resets services after an earlier request. It is called now, because the client already has its response.
            $kernel->boot();
        }
        return;
    }

    require_once __DIR__ . '/application_state.php';
    $services = static function () use ($container): array {
        return (function (): array {
            return [$this->services, $this->privates];
        })->bindTo($container, Container::class)();
    };
    $drop = static function (array $ids) use ($container): void {
        (function () use ($ids): void {
            foreach (['services', 'privates'] as $property) {
                $this->{$property} = array_filter($this->{$property}, static function (mixed $service) use ($ids): bool {
                    return !is_object($service) || !isset($ids[spl_object_id($service)]);
                });
            }
        })->bindTo($container, Container::class)();
    };
    $generated = [$kernel->getCacheDir(), method_exists($kernel, 'getBuildDir') ? $kernel->getBuildDir() : $kernel->getCacheDir()];
    $state = new ApplicationState($folder, $generated, [$kernel, $container]);
    $state->remember([$services(), $entrance]);
    $kernelAtBoot = ApplicationState::properties($kernel);

    // In `fork` each request's process would have to log in.
    if (getenv('HEARTH_MODEL') === 'snapshot') {
        require_once __DIR__ . '/databases.php';
        require_once __DIR__ . '/sqlite_file.php';
        hearth_on_worker_start(static fn () => Databases::ofSymfony($container));
        hearth_on_worker_start(static function () use ($container, &$files): void {
            $files = SqliteFile::ofSymfony($container);
        });
    }

    while (hearth_handle_request($handle)) {
        if (!$isWarmUp) {
            continue;
        }
        if (!$complete) {
            $forget();
        }
        $kernel->boot();
        if ($container->initialized('doctrine')) {
            foreach ($container->get('doctrine')->getConnections() as $connection) {
                $connection->close();
            }
        }
        ApplicationState::putBackProperties($kernel, $kernelAtBoot);
        $drop($state->putBack([$services(), $entrance]));
        // Garbage in cycles may include an open connection.
        gc_collect_cycles();
    }
})();
