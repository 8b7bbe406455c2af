<?php

declare(strict_types=1);

namespace App;

use Symfony\Bundle\FrameworkBundle\Kernel\MicroKernelTrait;
use Symfony\Component\DependencyInjection\Loader\Configurator\ContainerConfigurator;
use Symfony\Component\HttpFoundation\JsonResponse;
use Symfony\Component\HttpFoundation\Request;
use Symfony\Component\HttpKernel\Kernel as BaseKernel;
use Symfony\Component\Routing\Loader\Configurator\RoutingConfigurator;

/** Stores the current user, like services written for php-fpm: without a reset. */
final class CurrentUser
{
    public static ?string $last = null;
    public ?string $name = null;
    /** @var array<string, string> */
    public array $cache = [];
}

/** A collector that grows: php/frankenphp#959. */
final class Collector
{
    /** @var array<mixed> */
    public array $calls = [];
    public ?Request $request = null;
}

final class Kernel extends BaseKernel
{
    use MicroKernelTrait;

    public function getProjectDir(): string
    {
        return dirname(__DIR__);
    }

    /** /leave does what a request of Ada does. */
    public function leave(Request $request): JsonResponse
    {
        $user = $this->container->get(CurrentUser::class);
        $user->name = CurrentUser::$last = 'ada';
        $user->cache['ada'] = 'secret';
        $collector = $this->container->get(Collector::class);
        $collector->calls[] = $request->query->all();
        $collector->request = $request;
        $router = $this->container->get('router');
        $router->getContext()->setHost('ada.example')->setParameter('_locale', 'xx');
        $this->container->get('event_dispatcher')->addListener('order', static fn () => null);
        $session = $request->getSession();
        $session->set('secret', 'of ada');
        ini_set('precision', '3');
        ini_set('session.cookie_lifetime', '17');
        date_default_timezone_set('Asia/Tokyo');
        \Locale::setDefault('de');
        $_ENV['APP_SECRET'] = 'of ada';
        putenv('TENANT=ada');
        define('TENANT', 'ada');
        set_error_handler(static fn (): bool => true);
        return new JsonResponse(['left' => true]);
    }

    /** /look shows what the next request sees. */
    public function look(Request $request): JsonResponse
    {
        $user = $this->container->get(CurrentUser::class);
        $collector = $this->container->get(Collector::class);
        $session = $request->getSession();
        return new JsonResponse([
            'pid' => getmypid(),
            'user' => [$user->name, CurrentUser::$last, $user->cache],
            'collector' => [count($collector->calls), $collector->request?->query->all()],
            'router' => [$this->container->get('router')->getContext()->getParameters()],
            'listeners' => $this->container->get('event_dispatcher')->hasListeners('order'),
            'session' => [$session->get('secret')],
            'requests' => $this->container->get('request_stack')->getParentRequest() !== null,
            'ini' => [ini_get('precision'), ini_get('session.cookie_lifetime'), date_default_timezone_get()],
            'locale' => \Locale::getDefault(),
            'environment' => [$_ENV['APP_SECRET'] ?? null, getenv('TENANT'), defined('TENANT')],
        ]);
    }

    private function configureContainer(ContainerConfigurator $container): void
    {
        $container->extension('framework', [
            'secret' => 'for tests',
            'http_method_override' => false,
            'session' => ['handler_id' => null, 'save_path' => '%kernel.project_dir%/var', 'storage_factory_id' => 'session.storage.factory.native'],
        ]);
        $services = $container->services();
        $services->set(CurrentUser::class)->public();
        $services->set(Collector::class)->public();
    }

    private function configureRoutes(RoutingConfigurator $routes): void
    {
        $routes->add('look', '/look')->controller('kernel::look');
        $routes->add('leave', '/leave')->controller('kernel::leave');
    }
}
