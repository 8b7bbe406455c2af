<?php

// Routes added to the example's. One request leaves traces wherever Laravel and the application keep state, and the next one looks for
// them.

use Illuminate\Foundation\Http\Middleware\ConvertEmptyStringsToNull;
use Illuminate\Support\Facades\Cookie;
use Illuminate\Support\Facades\DB;
use Illuminate\Support\Facades\Event;
use Illuminate\Support\Facades\Log;
use Illuminate\Support\Facades\Route;
use Illuminate\Support\Facades\URL;
use Illuminate\Support\Facades\View;

/** A typical service of an application: created once for each process, with state that it keeps. */
final class Memo
{
    public static int $made = 0;
    public static array $seen = [];
    public ?string $first = null;

    public function __construct()
    {
        self::$made++;
    }

    public static function visits(): int
    {
        static $visits = 0;
        return ++$visits;
    }

    public function learn(string $what): string
    {
        self::visits();
        self::$seen[] = $what;
        return $this->first ??= $what;
    }
}

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

    /** State for which the model `worker` makes no promise. */
    public function lookDeeper(): array
    {
        return $this->look() + [
            'first' => app(Memo::class)->learn('look'),
            'early' => app('early')->learn('look'),
            'visits' => Memo::visits(),
            'made' => Memo::$made,
            'seen' => Memo::$seen,
            'warm_up' => $_SERVER['HEARTH_WARM_UP'] ?? null,
        ];
    }

    public function leaveTraces(): array
    {
        app(Memo::class)->learn('traces');
        app('early')->learn('traces');
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

final class Later
{
    public function handle(object $request, Closure $next): mixed
    {
        return $next($request);
    }

    public function terminate(): void
    {
        writeLater();
    }
}

/** Writes a file after the client has confirmed its answer. */
function writeLater(): void
{
    while (!is_file(storage_path('answered'))) {
        usleep(1000);
        clearstatcache();
    }
    file_put_contents(storage_path('later'), 'done');
}

app()->singleton(Memo::class);
// Created while the application boots.
app()->instance('early', new Memo());

Route::get('/pid', static fn (): array => ['pid' => getmypid()]);
Route::get('/look', [Remembering::class, 'look']);
// The worker script makes a request without a body by itself.
Route::any('/captured', static function (Illuminate\Http\Request $request): array {
    $bags = static fn (Illuminate\Http\Request $of): array => [
        get_class($of), $of->query->all(), $of->request->all(), $of->cookies->all(), $of->allFiles(), $of->server->all(), $of->headers->all(),
        $of->request === $of->query, $of->method(), $of->fullUrl(), $of->all(), $of->getContent(), $of->isJson(), $of::getHttpMethodParameterOverride(),
    ];
    $differences = array_udiff_assoc($bags($request), $bags(Illuminate\Http\Request::capture()), static fn (mixed $a, mixed $b): int => (int) ($a !== $b));
    return ['differences' => $differences, 'all' => $request->all()];
});
Route::get('/deeper', [Remembering::class, 'lookDeeper']);
Route::get('/traces', [Remembering::class, 'leaveTraces']);
Route::get('/traces-and-exit', static function (): void {
    echo json_encode((new Remembering())->leaveTraces());
    exit;
});
Route::get('/later-by-middleware', static fn (): string => 'now')->middleware(Later::class);
Route::get('/later-by-body', static fn (): object => response()->stream(static function (): void {
    echo 'now';
    app()->terminating(writeLater(...));
}));
Route::get('/later-by-binding', static function (): string {
    app()->bind(ConvertEmptyStringsToNull::class, Later::class);
    return 'now';
});
Route::get('/later', static function (): string {
    app()->terminating(writeLater(...));
    return 'now';
});
