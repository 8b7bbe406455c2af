<?php

/** A minimal Laravel application: Hearth's provider, and the parts that its Http client needs. */

declare(strict_types=1);

namespace Hearth\Tests\Laravel;

use Hearth\Laravel\HearthServiceProvider;
use Hearth\Tests\Servers;
use Illuminate\Config\Repository;
use Illuminate\Events\EventServiceProvider;
use Illuminate\Foundation\Application as LaravelsApplication;
use Illuminate\Support\Facades\Facade;

final class Application
{
    /** @param array<string, mixed> $egress settings */
    public static function with(array $egress, ?string $folder = null): LaravelsApplication
    {
        $app = new LaravelsApplication($folder ?? Servers::folder());
        $app->instance('config', new Repository(['hearth' => ['egress' => $egress + ['enabled' => true, 'max_handles' => 5, 'direct' => []]]]));
        $app->register(new EventServiceProvider($app));
        $app->register(new HearthServiceProvider($app));
        Facade::clearResolvedInstances();
        Facade::setFacadeApplication($app);
        return $app;
    }
}
