<?php

/*
 * What the published benchmark wants of Orchestra's Testbench: an application, made of Debian's Laravel. And the autoloader of that package, whose folder is
 * $folder of the file that requires this one.
 */

declare(strict_types=1);

namespace Orchestra\Testbench\Concerns {

    use Illuminate\Config\Repository;
    use Illuminate\Foundation\Application;
    use Illuminate\Http\Client\Factory;
    use Illuminate\Support\Facades\Facade;

    trait CreatesApplication
    {
        /** With `$GLOBALS['providers']` in place of the benchmark's own, where that is set. */
        public function createApplication(): Application
        {
            $application = new Application(sys_get_temp_dir());
            // Laravel 11's integer(), which the package calls.
            $application->instance('config', new class extends Repository {
                public function integer(string $key, int $default): int
                {
                    return (int) $this->get($key, $default);
                }
            });
            Facade::clearResolvedInstances();
            Facade::setFacadeApplication($application);
            foreach ($GLOBALS['providers'] ?? $this->getPackageProviders($application) as $provider) {
                $application->register($provider);
            }
            // Laravel 8 binds no factory by itself.
            $application->bindIf(Factory::class, static fn (): Factory => new Factory());
            return $application;
        }
    }
}

namespace {

    require_once __DIR__ . '/../../packages/core/tests/bootstrap.php';
    require_once '/usr/share/php/Illuminate/Foundation/helpers.php';

    spl_autoload_register(static function (string $class) use ($folder): void {
        $prefix = 'Cego\\CurlHandleReuseLaravelOctane\\';
        if (str_starts_with($class, $prefix)) {
            $path = str_replace('\\', '/', substr($class, strlen($prefix)));
            require is_file("{$folder}/src/{$path}.php") ? "{$folder}/src/{$path}.php" : "{$folder}/tests/" . preg_replace('#^Tests/#', '', $path) . '.php';
        }
    });
}
