<?php

/** The contract with Laravel Octane that hearth/laravel relies on, for tests without a copy of Octane: the provider names its commands by class,
 * and the container creates them. */

declare(strict_types=1);

namespace Laravel\Octane;

use Illuminate\Support\ServiceProvider;

class OctaneServiceProvider extends ServiceProvider
{
    public function boot(): void
    {
        $this->app['config']->set('octane.max_execution_time', 30);
        $this->commands([Commands\StartCommand::class, Commands\ReloadCommand::class, Commands\StatusCommand::class, Commands\StopCommand::class]);
    }
}
