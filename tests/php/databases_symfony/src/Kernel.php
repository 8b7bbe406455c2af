<?php

declare(strict_types=1);

namespace App;

use Doctrine\DBAL\Connection;
use Doctrine\DBAL\DriverManager;
use Symfony\Bundle\FrameworkBundle\Kernel\MicroKernelTrait;
use Symfony\Component\DependencyInjection\Loader\Configurator\ContainerConfigurator;
use Symfony\Component\HttpFoundation\JsonResponse;
use Symfony\Component\HttpKernel\Kernel as BaseKernel;
use Symfony\Component\Routing\Loader\Configurator\RoutingConfigurator;

/** Stands in for DoctrineBundle's registry of connections. */
final class Registry
{
    /** @var array<string, Connection> */
    private array $connections;

    public function __construct()
    {
        $this->connections = ['default' => DriverManager::getConnection(json_decode((string) getenv('CONNECTION'), true))];
    }

    /** @return array<string, Connection> */
    public function getConnections(): array
    {
        return $this->connections;
    }
}

final class Kernel extends BaseKernel
{
    use MicroKernelTrait;

    public function getProjectDir(): string
    {
        return dirname(__DIR__);
    }

    public function boot(): void
    {
        parent::boot();
        if (getenv('ASKS_AT_BOOT')) {
            $this->connection()->fetchOne('select 1');
        }
    }

    private function connection(): Connection
    {
        return $this->container->get('doctrine')->getConnections()['default'];
    }

    public function ids(): JsonResponse
    {
        $id = $this->connection()->fetchOne((string) getenv('ID'));
        return new JsonResponse(['id' => $id, 'level' => $this->connection()->getTransactionNestingLevel(), 'pid' => getmypid()]);
    }

    public function leave(): JsonResponse
    {
        $this->connection()->beginTransaction();
        $this->connection()->executeStatement('insert into shop.things (id) values (?)', [7]);
        return new JsonResponse(true);
    }

    public function count(): JsonResponse
    {
        return new JsonResponse((int) $this->connection()->fetchOne('select count(*) from shop.things'));
    }

    private function configureContainer(ContainerConfigurator $container): void
    {
        $container->extension('framework', ['secret' => 'for tests', 'http_method_override' => false]);
        $container->services()->set('doctrine', Registry::class)->public();
    }

    private function configureRoutes(RoutingConfigurator $routes): void
    {
        foreach (['ids', 'leave', 'count'] as $name) {
            $routes->add($name, "/$name")->controller("kernel::$name");
        }
    }
}
