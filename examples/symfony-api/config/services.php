<?php

declare(strict_types=1);

namespace Symfony\Component\DependencyInjection\Loader\Configurator;

return static function (ContainerConfigurator $container): void {
    $container->extension('framework', [
        'secret' => '%env(APP_SECRET)%',
        'http_method_override' => false,
        'router' => ['utf8' => true],
        'php_errors' => ['log' => true],
    ]);
    $container->extension('twig', ['default_path' => '%kernel.project_dir%/templates', 'strict_variables' => true]);
    // Signs nothing in this example; a real application sets it in its environment.
    $container->parameters()->set('env(APP_SECRET)', 'an example has no secrets');

    $services = $container->services()->defaults()->autowire()->autoconfigure();
    $services->load('App\\', '../src/')->exclude('../src/Kernel.php');
};
