<?php

declare(strict_types=1);

namespace App;

use Symfony\Bundle\FrameworkBundle\Kernel\MicroKernelTrait;
use Symfony\Component\DependencyInjection\Loader\Configurator\ContainerConfigurator;
use Symfony\Component\HttpFoundation\JsonResponse;
use Symfony\Component\HttpFoundation\Request;
use Symfony\Component\HttpFoundation\RequestStack;
use Symfony\Component\HttpKernel\Event\RequestEvent;
use Symfony\Component\HttpKernel\Event\TerminateEvent;
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

/** A typical service of an application: it keeps state and is not reset. */
final class Memo
{
    public static array $seen = [];
    public ?string $first = null;

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

/** Listens to every request and every end; the dispatcher holds it. */
final class Listener
{
    public function __construct(public readonly Memo $memo, private readonly string $folder)
    {
    }

    public function onRequest(RequestEvent $event): void
    {
        $this->memo->learn($event->getRequest()->getPathInfo());
    }

    public function onTerminate(TerminateEvent $event): void
    {
        if ($event->getRequest()->getPathInfo() === '/later') {
            // Waits until the client has confirmed its answer.
            while (!is_file($this->folder . '/var/answered')) {
                usleep(1000);
                clearstatcache();
            }
            file_put_contents($this->folder . '/var/later', 'done');
        }
    }
}

class Kernel extends BaseKernel
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

    /** State for which the model `worker` makes no promise. */
    public function deeper(): JsonResponse
    {
        $memo = $this->container->get(Memo::class);
        return new JsonResponse([
            'first' => $memo->first,
            'seen' => Memo::$seen,
            'visits' => Memo::visits(),
            'one_for_all' => $this->container->get(Listener::class)->memo === $memo,
            'requests' => ++$this->requests,
            'warm_up' => $_SERVER['HEARTH_WARM_UP'] ?? null,
            'kernel' => static::class,
        ]);
    }

    /** The worker script creates most requests by itself. */
    public function created(Request $request): JsonResponse
    {
        $facts = static fn (Request $of): array => [
            $of::class, $of->query->all(), $of->request->all(), $of->cookies->all(), $of->files->all(), $of->server->all(),
            // Symfony's kernel adds this one.
            array_diff_key($of->headers->all(), ['x-php-ob-level' => 0]), $of->getMethod(), $of->getUri(), $of->getContent(),
        ];
        $differences = $request->isMethod('PATCH') ? [] : array_udiff_assoc(
            $facts($request),
            $facts(Request::createFromGlobals()),
            static fn (mixed $a, mixed $b): int => (int) ($a !== $b),
        );
        return new JsonResponse([
            'differences' => $differences,
            'all' => [$request->query->all(), $request->request->all()],
            'greeting' => $request->server->get('GREETING'),
        ]);
    }

    public function stack(RequestStack $stack): JsonResponse
    {
        return new JsonResponse(['main' => $stack->getMainRequest()->getPathInfo()]);
    }

    public function leave(): never
    {
        ++$this->container->get(Counter::class)->calls;
        exit;
    }

    public function later(): JsonResponse
    {
        return new JsonResponse('now');
    }

    private function configureContainer(ContainerConfigurator $container): void
    {
        $container->extension('framework', ['secret' => 'for tests']);
        $services = $container->services();
        $services->set(Counter::class)->public()->autoconfigure();
        $services->set(Memo::class)->public();
        $services->set(Listener::class)->public()->autowire()->arg('$folder', '%kernel.project_dir%')
            ->tag('kernel.event_listener', ['event' => 'kernel.request', 'method' => 'onRequest']);
        if (getenv('LISTENS_TO_THE_END')) {
            $services->get(Listener::class)
                ->tag('kernel.event_listener', ['event' => 'kernel.terminate', 'method' => 'onTerminate']);
        }
    }

    private function configureRoutes(RoutingConfigurator $routes): void
    {
        foreach (['count', 'deeper', 'created', 'stack', 'leave', 'later'] as $name) {
            $routes->add($name, "/{$name}")->controller("kernel::{$name}");
        }
    }
}
