<?php

declare(strict_types=1);

namespace App;

use Symfony\Bundle\FrameworkBundle\Kernel\MicroKernelTrait;
use Symfony\Component\DependencyInjection\Loader\Configurator\ContainerConfigurator;
use Symfony\Component\HttpFoundation\JsonResponse;
use Symfony\Component\HttpKernel\Kernel as BaseKernel;
use Symfony\Component\Routing\Loader\Configurator\RoutingConfigurator;
use Symfony\Contracts\Service\ResetInterface;

/** Counts calls since its last reset. */
final class Counter implements ResetInterface
{
    public int $calls = 0;

    public function reset(): void
    {
        $this->calls = 0;
    }
}

final class Kernel extends BaseKernel
{
    use MicroKernelTrait;

    private int $requests = 0;

    public function getProjectDir(): string
    {
        return dirname(__DIR__);
    }

    public function count(): JsonResponse
    {
        $counter = $this->container->get(Counter::class);
        return new JsonResponse([
            'pid' => getmypid(),
            'requests' => ++$this->requests,
            'calls_since_reset' => ++$counter->calls,
            'environment' => $this->environment,
            'debug' => $this->debug,
            'greeting' => $_SERVER['GREETING'] ?? null,
            'script' => $_SERVER['SCRIPT_NAME'],
        ]);
    }

    private function configureContainer(ContainerConfigurator $container): void
    {
        $container->extension('framework', ['secret' => 'for tests']);
        $container->services()->set(Counter::class)->public()->autoconfigure();
    }

    private function configureRoutes(RoutingConfigurator $routes): void
    {
        $routes->add('count', '/count')->controller('kernel::count');
    }
}
