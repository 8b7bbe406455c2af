<?php

/** Reads the settings into parameters, for the pass that knows all services. */

declare(strict_types=1);

namespace Hearth\Symfony\DependencyInjection;

use Symfony\Component\DependencyInjection\ContainerBuilder;
use Symfony\Component\DependencyInjection\Extension\Extension;

final class HearthExtension extends Extension
{
    public function load(array $configs, ContainerBuilder $container): void
    {
        $config = $this->processConfiguration(new Configuration(), $configs);
        foreach (['enabled', 'socket', 'direct'] as $name) {
            $container->setParameter("hearth.egress.{$name}", $config['egress'][$name]);
        }
    }
}
