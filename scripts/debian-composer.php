<?php

/*
 * Prints a composer.json that needs no network: the application's own autoload rules, and in place of its "require"
 * the folders below /usr/share/php where Debian's packages keep the same libraries.
 */

declare(strict_types=1);

const LIBRARIES = '/usr/share/php';

// What each required package needs at run time; what a release of Debian does not have is left out.
const SYMFONY = ['Symfony', 'Psr', 'Twig'];
const LARAVEL = [
    'Illuminate', 'Symfony/Component', 'Symfony/Contracts', 'Symfony/Polyfill', 'Psr', 'Brick', 'Carbon', 'Cron', 'Dflydev', 'Doctrine',
    'Dotenv', 'Egulias', 'GrahamCampbell', 'Laravel', 'League', 'Monolog', 'Nette', 'Opis', 'PhpOption', 'Ramsey', 'Swift',
    'TijsVerkoyen', 'voku', 'Webmozart', 'Termwind', 'Nunomaduro', 'Fruitcake', 'GuzzleHttp',
];
const FOLDERS = [
    'symfony/framework-bundle' => SYMFONY,
    'symfony/twig-bundle' => SYMFONY,
    'laravel/framework' => LARAVEL,
];
// Functions, which no class map finds; as in the libraries' own composer.json.
const FUNCTIONS = [
    'Symfony/Contracts/Deprecation/function.php',
    'Symfony/Component/String/Resources/functions.php',
    'Symfony/Polyfill/Php83/bootstrap.php',
    'Symfony/Polyfill/Php84/bootstrap.php',
    'Symfony/Polyfill/Php85/bootstrap.php',
    'Symfony/Polyfill/Php86/bootstrap.php',
    'Symfony/Component/VarDumper/Resources/functions/dump.php',
    'Illuminate/Collections/functions.php',
    'Illuminate/Collections/helpers.php',
    'Illuminate/Events/functions.php',
    'Illuminate/Filesystem/functions.php',
    'Illuminate/Foundation/helpers.php',
    'Illuminate/Log/functions.php',
    'Illuminate/Support/functions.php',
    'Illuminate/Support/helpers.php',
    'Laravel/Prompts/helpers.php',
    'Ramsey/Uuid/functions.php',
    'Swift/swift_required.php',
    'Termwind/Functions.php',
    'Twig/Resources/core.php',
    'Twig/Resources/debug.php',
    'Twig/Resources/escaper.php',
    'Twig/Resources/string_loader.php',
];

$application = json_decode(file_get_contents($argv[1]), true, 512, JSON_THROW_ON_ERROR);
$autoload = $application['autoload'] ?? [];

$folders = [];
foreach (array_keys($application['require'] ?? []) as $package) {
    if ($package === 'php' || str_starts_with($package, 'ext-')) {
        continue;
    }
    if (str_starts_with($package, 'hearth/')) {
        // Ours: the folder beside.
        foreach (['core', 'guzzle', basename($package)] as $ours) {
            $theirs = dirname(__DIR__) . "/packages/{$ours}";
            foreach (json_decode(file_get_contents("{$theirs}/composer.json"), true, 512, JSON_THROW_ON_ERROR)['autoload']['psr-4'] as $prefix => $folder) {
                $autoload['psr-4'][$prefix] = "{$theirs}/{$folder}";
            }
        }
        continue;
    }
    $known = FOLDERS[$package] ?? throw new RuntimeException("Where does Debian keep {$package}? Say so in " . __FILE__);
    $folders = array_merge($folders, $known);
}
$folders = array_values(array_unique($folders));

foreach ($folders as $folder) {
    if (is_dir(LIBRARIES . "/{$folder}")) {
        $autoload['classmap'][] = LIBRARIES . "/{$folder}";
    }
}
foreach (FUNCTIONS as $file) {
    $wanted = array_filter($folders, fn (string $folder): bool => str_starts_with($file, "{$folder}/"));
    if ($wanted !== [] && is_file(LIBRARIES . "/{$file}")) {
        $autoload['files'][] = LIBRARIES . "/{$file}";
    }
}
// Their tests, and autoloaders of Debian's own.
$autoload['exclude-from-classmap'][] = '**/Tests/';
$autoload['exclude-from-classmap'][] = '**/autoload.php';

echo json_encode([
    'name' => $application['name'],
    'description' => 'Written by scripts/assemble-example',
    'license' => 'MIT',
    'autoload' => $autoload,
    'repositories' => [['packagist.org' => false]],
    'config' => ['vendor-dir' => 'vendor', 'autoloader-suffix' => 'Hearth' . md5($application['name'])],
], JSON_PRETTY_PRINT | JSON_UNESCAPED_SLASHES | JSON_THROW_ON_ERROR), "\n";
