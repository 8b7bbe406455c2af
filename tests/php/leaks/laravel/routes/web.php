<?php

declare(strict_types=1);

// The leaks that users of worker modes have published, in one application: /leave is a request of the user Ada, /look shows what
// the next one sees. Nothing here is wrong under php-fpm.

use Illuminate\Auth\GenericUser;
use Illuminate\Database\Eloquent\Model;
use Illuminate\Http\Request;
use Illuminate\Pagination\Paginator;
use Illuminate\Support\Carbon;
use Illuminate\Support\Facades\Cookie;
use Illuminate\Support\Facades\DB;
use Illuminate\Support\Facades\Event;
use Illuminate\Support\Facades\Route;
use Illuminate\Support\Facades\URL;
use Illuminate\Support\Facades\Validator;
use Illuminate\Support\Facades\View;
use Illuminate\Support\Str;

final class Tenant
{
    public static ?string $current = null;
    public ?string $name = null;
}

/** A service that took the request when it was made: archtechx/laravel-seo#35. */
final class Page
{
    public function __construct(private readonly Request $request)
    {
    }

    public function title(): string
    {
        return (string) $this->request->query('user', 'nobody');
    }
}

/** Validates once and remembers it: tailflow/laravel-orion#121. */
final class Rules
{
    private bool $checked = false;

    public function allows(mixed $value): bool
    {
        if ($this->checked) {
            return true;
        }
        $this->checked = true;
        return !Validator::make(['age' => $value], ['age' => 'integer'])->fails();
    }
}

app()->singleton(Tenant::class);
app()->singleton(Page::class);
app()->singleton(Rules::class);
DB::connection()->getPdo();

Route::get('/look', static fn (Request $request): array => [
    'pid' => getmypid(),
    'user' => auth()->user()->name ?? null,
    'session' => session()->all()['secret'] ?? null,
    'tenant' => [app(Tenant::class)->name, Tenant::$current],
    'page' => app()->resolved(Page::class) ? app(Page::class)->title() : null,
    'invalid input' => app(Rules::class)->allows('none'),
    'config' => [config('app.name'), config('database.default'), config('session.driver')],
    'locale' => [app()->getLocale(), Carbon::getLocale(), __('validation.accepted')],
    'clock' => Carbon::hasTestNow(),
    'shared with views' => View::shared('secret'),
    'listeners' => [Event::hasListeners('order'), Model::getEventDispatcher()?->hasListeners('eloquent.saved: Order')],
    'routes' => Route::has('left'),
    'url' => parse_url(url('/x'), PHP_URL_HOST),
    'page number' => Paginator::resolveCurrentPage(),
    'uuid' => Str::uuid()->toString() === '00000000-0000-0000-0000-000000000001',
    'macro' => Request::hasMacro('secret'),
    'cookies' => count(Cookie::getQueuedCookies()),
    'transactions' => [DB::connection('sqlite')->transactionLevel(), DB::connection('sqlite')->table('messages')->where('author', 'ada')->count()],
    'queries' => count(DB::connection('sqlite')->getQueryLog()),
    'ini' => [ini_get('precision'), ini_get('memory_limit'), ini_get('session.cookie_lifetime'), date_default_timezone_get()],
]);

Route::get('/leave', static function (Request $request): array {
    auth()->setUser(new GenericUser(['id' => 1, 'name' => 'ada']));
    session(['secret' => 'of ada']);
    app(Tenant::class)->name = Tenant::$current = 'ada';
    app(Page::class);
    app(Rules::class)->allows(1);
    config(['app.name' => 'of ada', 'database.default' => 'other', 'session.driver' => 'array']);
    app()->setLocale('xx');
    Carbon::setLocale('de');
    Carbon::setTestNow('2001-01-01');
    View::share('secret', 'of ada');
    Event::listen('order', static fn () => null);
    Model::getEventDispatcher()?->listen('eloquent.saved: Order', static fn () => null);
    Route::get('/left', static fn () => 'left')->name('left');
    Route::getRoutes()->refreshNameLookups();
    URL::forceRootUrl('http://ada.example');
    Paginator::currentPageResolver(static fn (): int => 17);
    Str::createUuidsUsing(static fn () => Ramsey\Uuid\Uuid::fromString('00000000-0000-0000-0000-000000000001'));
    Request::macro('secret', static fn () => 'of ada');
    Cookie::queue('secret', 'of ada');
    DB::connection('sqlite')->enableQueryLog();
    DB::connection('sqlite')->beginTransaction();
    DB::connection('sqlite')->table('messages')->insert(['author' => 'ada', 'text' => 'not committed', 'said_at' => '2026-01-01']);
    ini_set('precision', '3');
    ini_set('memory_limit', '1G');
    ini_set('session.cookie_lifetime', '17');
    date_default_timezone_set('Asia/Tokyo');
    return ['left' => true];
});
