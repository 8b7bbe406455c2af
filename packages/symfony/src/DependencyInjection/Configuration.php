<?php

/** The settings below `hearth` in config/packages/hearth.yaml. */

declare(strict_types=1);

namespace Hearth\Symfony\DependencyInjection;

use Symfony\Component\Config\Definition\Builder\TreeBuilder;
use Symfony\Component\Config\Definition\ConfigurationInterface;

final class Configuration implements ConfigurationInterface
{
    public function getConfigTreeBuilder(): TreeBuilder
    {
        $tree = new TreeBuilder('hearth');
        $tree->getRootNode()
            ->children()
                ->arrayNode('egress')
                    ->addDefaultsIfNotSet()
                    ->children()
                        ->booleanNode('enabled')
                            ->info('false: HttpClient stays as Symfony has it')
                            ->defaultTrue()
                        ->end()
                        ->scalarNode('socket')
                            ->info('path of the broker\'s socket; "off": none')
                            ->defaultValue('%env(default::HEARTH_EGRESS)%')
                        ->end()
                        ->arrayNode('direct')
                            ->info('hosts that are always called directly: api.example.com, or *.internal for all below one')
                            ->scalarPrototype()->end()
                        ->end()
                    ->end()
                ->end()
            ->end();
        return $tree;
    }
}
