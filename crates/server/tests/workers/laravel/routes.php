<?php

// Joined to the example's routes: one request leaves traces wherever Laravel keeps state, the next one looks for them.

use Illuminate\Support\Facades\Cookie;
use Illuminate\Support\Facades\DB;
use Illuminate\Support\Facades\Event;
use Illuminate\Support\Facades\Log;
use Illuminate\Support\Facades\Route;
use Illuminate\Support\Facades\URL;
use Illuminate\Support\Facades\View;

final class Remembering
{
    private int $calls = 0;

    public function look(): array
    {
        return [
            'pid' => getmypid(),
            'controller_calls' => ++$this->calls,
            'name' => config('app.name'),
            'locale' => app()->getLocale(),
            'translator' => app('translator')->getLocale(),
            'shared' => View::shared('trace'),
            'bound' => app()->bound('trace'),
            'listener' => Event::hasListeners('trace'),
            'transactions' => DB::transactionLevel(),
            'queries' => count(DB::getQueryLog()),
            'cookies' => count(Cookie::getQueuedCookies()),
            'url' => parse_url(url('/x'), PHP_URL_HOST),
            'user' => auth()->check(),
            'environment' => $_SERVER['APP_NAME'] ?? null,
        ];
    }

    public function leaveTraces(): array
    {
        config(['app.name' => 'trace']);
        app()->setLocale('xx');
        View::share('trace', true);
        app()->instance('trace', true);
        app()->terminating(static function (): void {
            Log::debug('trace');
        });
        Event::listen('trace', static function (): void {
        });
        DB::enableQueryLog();
        DB::beginTransaction();
        DB::select('select 1');
        Cookie::queue('trace', '1');
        URL::forceRootUrl('http://trace.example');
        auth()->setUser(new Illuminate\Auth\GenericUser(['id' => 1]));
        return $this->look();
    }
}

Route::get('/look', [Remembering::class, 'look']);
Route::get('/traces', [Remembering::class, 'leaveTraces']);
