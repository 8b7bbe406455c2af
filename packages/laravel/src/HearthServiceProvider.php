<?php

/** Registers the Http client's handler, the handler and a plain client in the container, the broadcasting driver
 * `hearth`, and Hearth's route if there are Applications. It contains no logic of its own. */

declare(strict_types=1);

namespace Hearth\Laravel;

use GuzzleHttp\Client;
use Hearth\Egress\Broker;
use Hearth\Guzzle\Handler;
use Hearth\Realtime\Applications;
use Hearth\Realtime\LookUp;
use Illuminate\Broadcasting\BroadcastManager;
use Illuminate\Contracts\Foundation\Application;
use Illuminate\Http\Client\Factory;
use Illuminate\Support\Facades\Facade;
use Illuminate\Support\ServiceProvider;

final class HearthServiceProvider extends ServiceProvider
{
    /** @var array<string, Handler> one of a kind in a process, by settings: a container may last no longer than a request (Octane) */
    private static array $handlers = [];

    public function register(): void
    {
        $this->mergeConfigFrom(__DIR__ . '/../config/hearth.php', 'hearth');
        $this->broadcasting();
        $this->octane();
        $this->app->bind(LookUp::class, static function (Application $app): LookUp {
            $token = $app['config']['hearth.lookup.token'] ?? null;
            return new LookUp($app[Applications::class], is_string($token) ? $token : null);
        });
        $this->app->singleton(Handler::class, static function (Application $app): Handler {
            return self::handler((array) $app['config']['hearth.egress']);
        });
        $this->app->alias(Handler::class, 'hearth.http.handler');
        // For other packages that take a Guzzle client.
        $this->app->singleton('hearth.http.client', static function (Application $app): Client {
            return new Client(['handler' => Handler::stack($app[Handler::class])]);
        });
        if (!$this->app['config']['hearth.egress.enabled']) {
            return;
        }
        // Laravel 8 creates a new factory each time, so fakes set on one would not apply to another.
        $this->app->singletonIf(Factory::class);
        $this->app->extend(Factory::class, static function (Factory $factory, Application $app): Factory {
            // An application's own factory is not changed.
            return $factory::class === Factory::class ? HttpFactory::inPlaceOf($factory, $app[Handler::class]) : $factory;
        });
        Facade::clearResolvedInstance(Factory::class);
    }

    public function boot(): void
    {
        $this->app->booted(static function (Application $app): void {
            $path = $app['config']['hearth.lookup.path'] ?? null;
            // Only if the application can answer: otherwise the route is not registered.
            if (is_string($path) && $path !== '' && $app->bound(Applications::class) && !$app->routesAreCached()) {
                $app['router']->get($path, LookUpController::class)->name('hearth.lookup');
            }
        });
        if ($this->app->runningInConsole()) {
            $this->commands([ServeCommand::class, ChannelsCommand::class]);
            $this->publishes([__DIR__ . '/../config/hearth.php' => $this->app->configPath('hearth.php')], 'hearth-config');
        }
    }

    /** Octane's commands by ours, which know the server `hearth` and leave the others to Octane's. Without Octane these names are never asked for. */
    private function octane(): void
    {
        foreach (['Start', 'Reload', 'Stop', 'Status'] as $name) {
            $this->app->bind("Laravel\\Octane\\Commands\\{$name}Command", __NAMESPACE__ . "\\Octane\\{$name}Command");
        }
    }

    /** The driver `hearth`, and a connection of that name where the application has none. */
    private function broadcasting(): void
    {
        $config = $this->app['config'];
        if (!$config->has('broadcasting.connections.hearth')) {
            $config->set('broadcasting.connections.hearth', ['driver' => 'hearth'] + (array) $config->get('hearth.broadcasting'));
        }
        $extend = static function (BroadcastManager $manager): void {
            $manager->extend('hearth', static fn (Application $app, array $connection): Broadcaster => Broadcaster::of($connection));
        };
        $this->app->afterResolving(BroadcastManager::class, $extend);
        if ($this->app->resolved(BroadcastManager::class)) {
            $extend($this->app->make(BroadcastManager::class));
        }
    }

    /** @param array<string, mixed> $settings */
    private static function handler(array $settings): Handler
    {
        $socket = $settings['socket'] ?? null;
        $handles = max(1, (int) ($settings['max_handles'] ?? 50));
        $direct = array_values(array_map('strval', (array) ($settings['direct'] ?? [])));
        // false in .env is no path.
        $broker = $socket === null ? Broker::fromEnvironment() : new Broker(is_string($socket) ? $socket : null);
        return self::$handlers[json_encode([$socket, $handles, $direct])] ??= new Handler($broker, $handles, $direct);
    }
}
