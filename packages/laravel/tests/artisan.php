<?php

/** An application with our commands, for ChannelsCommandTest: `php artisan.php hearth:channels …`. */

declare(strict_types=1);

use Hearth\Tests\Servers;
use Illuminate\Console\Application as Artisan;
use Illuminate\Events\Dispatcher;

require __DIR__ . '/../../core/tests/bootstrap.php';

$app = Hearth\Tests\Laravel\Application::with([]);
$app['config']->set('broadcasting.connections.hearth', [
    'app_id' => Servers::CHANNELS['id'], 'key' => Servers::CHANNELS['key'], 'secret' => Servers::CHANNELS['secret'],
]);
$app->boot();
exit((new Artisan($app, new Dispatcher($app), $app->version()))->run());
