<?php

/** Puts the egress broker under Symfony's HttpClient: `Hearth\Symfony\HearthBundle::class => ['all' => true]` in config/bundles.php. */

declare(strict_types=1);

namespace Hearth\Symfony;

use Hearth\Symfony\DependencyInjection\EgressPass;
use Symfony\Component\DependencyInjection\Compiler\PassConfig;
use Symfony\Component\DependencyInjection\ContainerBuilder;
use Symfony\Component\HttpKernel\Bundle\Bundle;

final class HearthBundle extends Bundle
{
    public function build(ContainerBuilder $container): void
    {
        parent::build($container);
        $container->addCompilerPass(new EgressPass(), PassConfig::TYPE_BEFORE_OPTIMIZATION, 100);
    }
}
