<?php

/** An application with our commands and Octane's: `APP_BASE_PATH=FOLDER php artisan.php hearth:serve …`. */

declare(strict_types=1);

use Hearth\Tests\Servers;
use Illuminate\Cache\CacheServiceProvider;
use Illuminate\Console\Application as Artisan;
use Illuminate\Events\Dispatcher;
use Laravel\Octane\OctaneServiceProvider;

require __DIR__ . '/../../core/tests/bootstrap.php';
require (getenv('LIBRARIES') ?: '/usr/share/php') . '/Illuminate/Foundation/helpers.php';

$folder = (string) getenv('APP_BASE_PATH');
$app = Hearth\Tests\Laravel\Application::with([], $folder);
$app['config']->set('broadcasting.connections.hearth', [
    'app_id' => Servers::CHANNELS['id'], 'key' => Servers::CHANNELS['key'], 'secret' => Servers::CHANNELS['secret'],
]);
$app['config']->set('octane.state_file', "{$folder}/octane-server-state.json");
// As Laravel does with `.env`.
putenv('FROM_DOTENV=1');
// Octane's cache store is an extension of Laravel's.
$app->register(new CacheServiceProvider($app));
// Composer names our provider before Octane's.
$app->register(new OctaneServiceProvider($app));
$app->boot();
$artisan = new Artisan($app, new Dispatcher($app), $app->version());
if (method_exists($artisan, 'setContainerCommandLoader')) {
    $artisan->setContainerCommandLoader();
}
exit($artisan->run());
