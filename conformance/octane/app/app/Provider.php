<?php

declare(strict_types=1);

namespace Suite;

use Illuminate\Support\Facades\Gate;
use Illuminate\Support\Facades\Route;
use Illuminate\Support\ServiceProvider;

class Provider extends ServiceProvider
{
    public function register(): void
    {
        $this->app->singleton(Counter::class);
        $this->app->scoped('scoped', static fn (): Counter => new Counter());
    }

    public function boot(): void
    {
        Gate::define('own', static fn ($user, string $id): bool => (string) $user->id === $id);
        Route::middleware('web')->group(base_path('routes/web.php'));
        Route::getRoutes()->refreshNameLookups();
    }
}
