<?php

// Each page changes something that Octane, or nothing, takes back; and shows what it found before.

declare(strict_types=1);

use Illuminate\Http\Request;
use Illuminate\Pagination\LengthAwarePaginator;
use Illuminate\Support\Facades\App;
use Illuminate\Support\Facades\Auth;
use Illuminate\Support\Facades\Cache;
use Illuminate\Support\Facades\Cookie;
use Illuminate\Support\Facades\DB;
use Illuminate\Support\Facades\Gate;
use Illuminate\Support\Facades\Log;
use Illuminate\Support\Facades\Route;
use Illuminate\Support\Facades\Storage;
use Illuminate\Support\Facades\URL;
use Illuminate\Support\Facades\Validator;
use Illuminate\Support\Facades\View;
use Laravel\Octane\Facades\Octane;
use Suite\Counter;

Route::any('seen', static function (Request $request): array {
    $request->session()->put('count', 1 + $request->session()->get('count', 0));

    return [
        $request->method(), $request->query(), $request->post(), $request->getContent(), $request->header('X-Sent'), $request->ip(), $request->path(), url('/a'),
        request('b'), $request->session()->get('count'), app()->runningInConsole(), array_map(static fn ($file): array => [$file->getClientOriginalName(), $file->get()], $request->allFiles()),
    ];
});
Route::get('locale/{to}', static function (string $to): array {
    $before = [App::getLocale(), __('page.hello', ['name' => 'a'])];
    App::setLocale($to);

    return [$before, __('page.hello', ['name' => 'a'])];
});
Route::get('config/{to}', static function (string $to): array {
    $before = config('app.name');
    config(['app.name' => $to]);

    return [$before, config('app.name')];
});
Route::get('login/{id}', static function (Request $request, int $id): array {
    $before = Auth::id();
    Auth::loginUsingId($id);

    return [$before, Auth::id(), Auth::user()->name, $request->user()->name];
});
Route::get('logout', static function (): array {
    Auth::logout();

    return [Auth::check()];
});
Route::get('me', static fn (Request $request): array => [Auth::id(), $request->user()?->name, Gate::allows('own', '1'), Gate::allows('own', '2')]);
Route::get('cookie/{name}', static function (Request $request, string $name) {
    Cookie::queue($name, 'value', 5);

    return [array_keys($request->cookies->all()) === [] ? 'none' : 'some', $request->cookie($name)];
});
Route::get('binding', static function (): array {
    $before = [app()->bound('of.a.request'), app('scoped')->count++];
    app()->instance('of.a.request', 'yes');

    return [$before, app('of.a.request'), app('scoped')->count];
});
Route::get('singleton', static fn (): array => [app(Counter::class)->count++]);
Route::get('static', static fn (): array => [Counter::$static++]);
Route::get('view/{name}', static function (string $name) {
    View::share('shared', "shared by $name");

    return view('page', ['name' => $name]);
});
Route::get('plain/{name}', static fn (string $name) => view('page', ['name' => $name]));
Route::get('route/{name}', static function (string $name): array {
    $before = Route::has($name);
    Route::get("made/$name", static fn (): string => $name)->name($name);

    return [$before];
});
Route::get('urls', static function (Request $request): array {
    $before = url('/a');
    URL::forceScheme('https');
    URL::defaults(['locale' => 'fr']);

    return [$before, url('/a'), URL::full(), URL::previous()];
});
Route::post('validate', static function (Request $request) {
    Validator::extend('even', static fn ($attribute, $value): bool => $value % 2 === 0);

    return $request->validate(['number' => 'required|even', 'name' => 'string|max:3']);
});
Route::get('page', static fn (): array => LengthAwarePaginator::resolveCurrentPage() ? (new LengthAwarePaginator(['a', 'b'], 20, 2))->withQueryString()->toArray() : []);
Route::get('rows/{name}', static function (string $name): array {
    DB::enableQueryLog();
    DB::table('rows')->insert(['name' => $name]);
    $found = DB::table('rows')->where('name', $name)->count();
    DB::table('rows')->where('name', $name)->delete();

    return [$found, count(DB::getQueryLog()), DB::transactionLevel()];
});
Route::get('transaction', static function (): array {
    $before = DB::transactionLevel();
    DB::beginTransaction();

    return [$before, DB::transactionLevel()];
});
Route::get('cache/{value}', static function (string $value): array {
    $before = [Cache::get('key'), Cache::store('array')->get('key')];
    Cache::put('key', $value, 60);
    Cache::store('array')->put('key', $value, 60);

    return [$before, Cache::get('key'), Cache::pull('key')];
});
Route::get('octane/cache', static fn (): array => [Cache::store('octane')->get('key'), Cache::store('octane')->put('key', 'value', 60)]);
Route::get('octane/concurrently', static fn (): array => Octane::concurrently(['a' => static fn (): int => 1, 'b' => static fn (): string => request()->path()]));
Route::post('upload', static function (Request $request): array {
    $file = $request->file('file');
    $valid = $file->isValid();
    $moved = $file->move(storage_path('app'), 'moved.txt');

    return [$valid, $file->getClientOriginalName(), file_get_contents($moved->getPathname()), Storage::get('moved.txt'), Storage::delete('moved.txt')];
});
Route::get('log', static function (): array {
    Log::withContext(['request' => 'one']);
    Log::info('logged');

    return ['logged'];
});
Route::get('echo', static function () {
    echo 'printed ';

    return 'returned';
});
Route::get('header', static function () {
    header('X-Raw: raw');

    return response('sent', 202)->header('X-Own', 'own')->cookie('plain', 'value', 5);
});
Route::get('stream', static fn () => response()->stream(static function (): void {
    foreach (['one ', 'two ', 'three'] as $part) {
        echo $part;
        flush();
    }
}, 200, ['Content-Type' => 'text/plain']));
Route::get('download', static fn () => response()->download(base_path('routes/web.php'), 'routes.txt'));
Route::get('redirect', static fn (Request $request) => redirect('/seen')->with('flash', 'seen once'));
Route::get('flash', static fn (Request $request): array => [$request->session()->get('flash')]);
Route::get('thrown', static function (): void {
    throw new RuntimeException('thrown');
});
Route::get('aborted/{status}', static function (int $status): void {
    abort($status, 'aborted');
});
Route::get('private', static fn (): string => 'private')->middleware('auth');
Route::get('login', static fn (): string => 'please log in')->name('login');
Route::get('dumped', static function (): void {
    $dump = 'dd'; // Octane's own, or VarDumper's
    $dump('dumped');
});
Route::get('settings', static function (): array {
    $before = [ini_get('precision'), date_default_timezone_get(), getenv('SUITE')];
    ini_set('precision', '5');
    date_default_timezone_set('Europe/Berlin');
    putenv('SUITE=set');

    return $before;
});
Route::get('terminated', static function (): array {
    $before = @file_get_contents(storage_path('terminated')) ?: '0';
    app()->terminating(static function () use ($before): void {
        file_put_contents(storage_path('terminated'), (string) ($before + 1));
    });

    return [(int) $before > 0];
});
