<?php

declare(strict_types=1);

namespace App\Providers;

use Hearth\Laravel\Broadcaster;
use Illuminate\Broadcasting\BroadcastManager;
use Illuminate\Contracts\Foundation\Application;
use Illuminate\Support\ServiceProvider;

/** The driver `hearth`. The package's own provider would do it too, and lead the Http client over warm connections, which the chat has no use for. */
final class BroadcastServiceProvider extends ServiceProvider
{
    public function register(): void
    {
        $this->app->afterResolving(BroadcastManager::class, static function (BroadcastManager $manager): void {
            $manager->extend('hearth', static function (Application $app, array $connection): Broadcaster {
                $broadcaster = Broadcaster::of($connection);
                (require base_path('routes/channels.php'))($broadcaster);

                return $broadcaster;
            });
        });
    }
}
