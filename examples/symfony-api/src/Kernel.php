<?php

declare(strict_types=1);

namespace App;

use App\Controller\HomeController;
use App\Controller\ItemController;
use Symfony\Bundle\FrameworkBundle\Kernel\MicroKernelTrait;
use Symfony\Component\DependencyInjection\Loader\Configurator\ContainerConfigurator;
use Symfony\Component\HttpKernel\Kernel as BaseKernel;
use Symfony\Component\Routing\Loader\Configurator\RoutingConfigurator;

final class Kernel extends BaseKernel
{
    use MicroKernelTrait;

    public function getProjectDir(): string
    {
        return dirname(__DIR__);
    }

    private function configureContainer(ContainerConfigurator $container): void
    {
        $container->import('../config/services.php');
    }

    private function configureRoutes(RoutingConfigurator $routes): void
    {
        $routes->add('home', '/')->controller([HomeController::class, 'home'])->methods(['GET']);
        $routes->add('hello', '/hello')->controller([HomeController::class, 'hello'])->methods(['GET']);
        $routes->add('json', '/json')->controller([HomeController::class, 'message'])->methods(['GET']);
        $routes->add('item_create', '/items')->controller([ItemController::class, 'create'])->methods(['POST']);
        $routes->add('item', '/items/{id}')->controller([ItemController::class, 'show'])
            ->requirements(['id' => '\d{1,9}'])->methods(['GET']);
    }
}
