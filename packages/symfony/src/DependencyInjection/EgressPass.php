<?php

/**
 * Decorates the transport of HttpClient: `http_client.transport`, or `http_client` where that is one and the same (Symfony 5.4), innermost
 * of all decorators. The default options of `framework.http_client` go with it: the decorator prepares the calls.
 */

declare(strict_types=1);

namespace Hearth\Symfony\DependencyInjection;

use Hearth\Symfony\EgressHttpClient;
use Symfony\Component\DependencyInjection\Compiler\CompilerPassInterface;
use Symfony\Component\DependencyInjection\ContainerBuilder;
use Symfony\Component\DependencyInjection\ContainerInterface;
use Symfony\Component\DependencyInjection\Reference;

final class EgressPass implements CompilerPassInterface
{
    /** Before Symfony's own: tracing is 5, repeating 10, mocks -10. */
    private const INNERMOST = 100;

    public function process(ContainerBuilder $container): void
    {
        $transport = $container->hasDefinition('http_client.transport') ? 'http_client.transport' : 'http_client';
        if (!$container->hasDefinition($transport) || !$container->getParameter('hearth.egress.enabled')) {
            return;
        }
        $arguments = $container->getDefinition($transport)->getArguments();
        $container->register('hearth.egress.http_client', EgressHttpClient::class)
            ->setFactory([EgressHttpClient::class, 'create'])
            ->setArguments([
                new Reference('hearth.egress.http_client.inner'),
                '%hearth.egress.socket%',
                is_array($arguments[0] ?? null) ? $arguments[0] : [],
                '%hearth.egress.direct%',
                new Reference('logger', ContainerInterface::NULL_ON_INVALID_REFERENCE),
                is_int($arguments[1] ?? null) ? $arguments[1] : 6,
            ])
            ->setDecoratedService($transport, null, self::INNERMOST)
            ->addTag('kernel.reset', ['method' => 'reset', 'on_invalid' => 'ignore'])
            ->addTag('monolog.logger', ['channel' => 'http_client']);
    }
}
