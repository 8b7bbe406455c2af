<?php

declare(strict_types=1);

namespace App;

use Symfony\Bundle\FrameworkBundle\Kernel\MicroKernelTrait;
use Symfony\Component\DependencyInjection\Loader\Configurator\ContainerConfigurator;
use Symfony\Component\HttpFoundation\Response;
use Symfony\Component\HttpKernel\Kernel as BaseKernel;
use Symfony\Component\Messenger\MessageBusInterface;
use Symfony\Component\Routing\Loader\Configurator\RoutingConfigurator;

/** A job that says when it begins and when it is done. */
final class Note
{
    public function __construct(public readonly int $number)
    {
    }
}

final class NoteHandler
{
    public function __construct(private readonly string $folder)
    {
    }

    public function __invoke(Note $note): void
    {
        $say = fn (string $what) => file_put_contents("{$this->folder}/ran", "{$what} {$note->number}\n", FILE_APPEND | LOCK_EX);
        $say('began');
        for ($until = hrtime(true) + 20_000_000; hrtime(true) < $until || file_exists("{$this->folder}/hold");) {
            usleep(1000);
        }
        $say('done');
    }
}

class Kernel extends BaseKernel
{
    use MicroKernelTrait;

    public function getProjectDir(): string
    {
        return dirname(__DIR__);
    }

    public function push(MessageBusInterface $bus, int $number): Response
    {
        $bus->dispatch(new Note($number));
        return new Response('pushed');
    }

    private function configureContainer(ContainerConfigurator $container): void
    {
        $container->parameters()->set('web_consumer', 'web');
        $container->extension('framework', [
            'secret' => 'for tests',
            'messenger' => [
                'transports' => ['async' => ['dsn' => '%env(MESSENGER_DSN)%', 'options' => [
                    'consumer' => '%env(default:web_consumer:HEARTH_PROCESS_NUMBER)%',
                    'delete_after_ack' => true,
                ]]],
                'routing' => [Note::class => 'async'],
            ],
        ]);
        $container->services()->set(NoteHandler::class)->arg('$folder', '%kernel.project_dir%')
            ->tag('messenger.message_handler', ['handles' => Note::class]);
        $container->services()->set('kernel', self::class)->synthetic()->public()->autowire()
            ->tag('controller.service_arguments')->tag('routing.route_loader');
    }

    private function configureRoutes(RoutingConfigurator $routes): void
    {
        $routes->add('push', '/push/{number}')->controller('kernel::push');
    }
}
