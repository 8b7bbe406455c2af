<?php

/** The look-up route exists if the application can answer. */

declare(strict_types=1);

namespace Hearth\Tests\Laravel;

use Hearth\Realtime\Applications;
use Illuminate\Filesystem\Filesystem;
use Illuminate\Foundation\Application as LaravelsApplication;
use Illuminate\Http\Request;
use PHPUnit\Framework\TestCase;
use Symfony\Component\HttpKernel\Exception\NotFoundHttpException;

final class LookUpTest extends TestCase implements Applications
{
    private const TOKEN = 'a token of sixteen and more';

    public function withKey(string $key): ?array
    {
        return $key === 'known' ? ['id' => '1', 'key' => $key, 'secret' => 's'] : null;
    }

    public function withId(string $id): ?array
    {
        return null;
    }

    private function application(bool $tells, string $path = '/hearth/apps'): LaravelsApplication
    {
        $app = Application::with([]);
        $app->instance('files', new Filesystem());
        $app['config']->set('hearth.lookup', ['path' => $path, 'token' => self::TOKEN]);
        if ($tells) {
            $app->instance(Applications::class, $this);
        }
        $app->boot();
        return $app;
    }

    /** @return array{int, string} */
    private static function get(LaravelsApplication $app, string $target, string $token = self::TOKEN): array
    {
        $request = Request::create($target, 'GET', [], [], [], ['HTTP_AUTHORIZATION' => "Bearer {$token}"]);
        $app->instance('request', $request);
        $response = $app['router']->dispatch($request);
        return [$response->getStatusCode(), $response->getContent()];
    }

    public function testHearthIsToldByItsRoute(): void
    {
        $app = $this->application(true);
        $this->assertSame([200, '{"id":"1","key":"known","secret":"s"}'], self::get($app, '/hearth/apps?key=known'));
        $this->assertSame([200, 'null'], self::get($app, '/hearth/apps?id=1'));
        $this->assertSame(403, self::get($app, '/hearth/apps?key=known', 'another')[0]);
        $this->assertSame(200, self::get($this->application(true, '/other'), '/other?key=known')[0]);
    }

    public function testWithoutApplicationsThereIsNoRoute(): void
    {
        $this->expectException(NotFoundHttpException::class);
        self::get($this->application(false), '/hearth/apps?key=known');
    }
}
