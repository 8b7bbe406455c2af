<?php

/* An application with a front controller that waits for its request deep in its boot. Each request names a case of `cases/`. */

declare(strict_types=1);

namespace Fixture;

/** Says when it is destroyed. */
final class Witness
{
    public mixed $other = null;

    public function __construct(private readonly string $name)
    {
    }

    public function __destruct()
    {
        echo "[{$this->name} destroyed]";
    }
}

final class Application
{
    /** @var list<string> */
    public static array $steps = [];

    public int $requests = 0;

    public function boot(): void
    {
        array_map(static function (string $file): void {
            require __DIR__ . "/inc/{$file}.php";
        }, ['settings', 'line']);
    }
}

header('X-Boot: kept');
header('X-Both: boot');
setcookie('boot', 'one');
register_shutdown_function(static function (): void {
    echo '[shutdown of the boot]';
});
ini_set('precision', '7');
date_default_timezone_set('Europe/Vienna');
$application = new Application();
$byBoot = new Witness('boot');
$cycle = new Witness('cycle');
$cycle->other = $cycle;
unset($cycle);
$stream = fopen(__DIR__ . '/inc/settings.php', 'rb');
fread($stream, 5);
ob_start(static fn (string $text): string => '<' . strtoupper($text) . '>');
echo 'output of the boot ';

$application->boot();

$application->requests++;
Application::$steps[] = 'request';
$byRequest = new Witness('request');
register_shutdown_function(static function (): void {
    echo '[shutdown of the request]';
});
header('X-Both: request');
header('X-Case: ' . ($_GET['case'] ?? 'none'));
echo ' request ', $application->requests, ' ', implode(',', Application::$steps), ' at ', ftell($stream), ' ', basename(getcwd()), "\n";

if (preg_match('/^[a-z_]+$/', $_GET['case'] ?? '') === 1) {
    require __DIR__ . "/cases/{$_GET['case']}.php";
}
echo 'end of the script ';
