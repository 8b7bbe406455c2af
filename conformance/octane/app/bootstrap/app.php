<?php

// A small Laravel application that uses what Octane has to reset: copied to bootstrap/app.php of a folder with its configuration.

declare(strict_types=1);

use Illuminate\Foundation\Application;

$app = new Application(dirname(__DIR__));
$app->singleton(Illuminate\Contracts\Http\Kernel::class, Suite\Kernel::class);
$app->singleton(Illuminate\Contracts\Console\Kernel::class, Illuminate\Foundation\Console\Kernel::class);
$app->singleton(Illuminate\Contracts\Debug\ExceptionHandler::class, Illuminate\Foundation\Exceptions\Handler::class);

return $app;
