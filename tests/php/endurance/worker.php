<?php

declare(strict_types=1);

// A mix of what requests do to a process. Each answers with its kind, its number twice, and how often this memory has served.

final class Life
{
    public static int $served = 0;
    /** @var array<mixed> */
    public static array $kept = [];
}

spl_autoload_register(static function (string $class): void {
    is_file($file = __DIR__ . "/late/$class.php") && require $file;
});
$pdo = in_array('sqlite', PDO::getAvailableDrivers(), true) ? new PDO('sqlite:' . __DIR__ . '/boot.sqlite') : null;
$pdo?->exec('CREATE TABLE IF NOT EXISTS visits (n)');

function act(string $kind, int $n, ?PDO $pdo): void
{
    switch ($kind) {
        case 'state':
            putenv("LEFT=$n");
            define('LEFT', $n);
            chdir('/');
            umask(0077);
            set_error_handler(static fn (): bool => false);
            register_shutdown_function(static fn () => null);
            break;
        case 'memory':
            Life::$kept[] = str_repeat('x', 3_000_000);
            break;
        case 'huge':
            for ($i = 0; $i < 4; $i++) {
                Life::$kept[] = str_repeat('x', 4_000_000 + $n);
            }
            break;
        case 'objects':
            for ($i = 0; $i < 5_000; $i++) {
                Life::$kept[] = (object) ['i' => $i, 'self' => null];
            }
            Life::$kept[0]->self = Life::$kept[0];
            break;
        case 'files':
            for ($i = 0; $i < 10; $i++) {
                Life::$kept[] = fopen(__FILE__, 'r');
            }
            Life::$kept[] = tmpfile();
            Life::$kept[] = opendir('/');
            break;
        case 'sockets':
            Life::$kept[] = stream_socket_pair(STREAM_PF_UNIX, STREAM_SOCK_STREAM, 0);
            Life::$kept[] = stream_socket_server('tcp://127.0.0.1:0');
            break;
        case 'session':
            session_start();
            $_SESSION['n'] = $n;
            break;
        case 'fibers':
            for ($i = 0; $i < 3; $i++) {
                $fiber = new Fiber(static fn () => Fiber::suspend());
                $fiber->start();
                Life::$kept[] = $fiber;
            }
            break;
        case 'autoload':
            $class = 'Late' . $n % 3;
            Life::$kept[] = new $class();
            break;
        case 'declare':
            eval("class Declared$n { const N = $n; } function declared_$n() { return Declared$n::N; }");
            assert(("declared_$n")() === $n);
            break;
        case 'regex':
            preg_match("/(?<n>$n)|[a-z]{2,}/u", "text $n", $match);
            preg_replace_callback('/./', static fn (array $m): string => strtoupper($m[0]), str_repeat('x', 1_000));
            break;
        case 'xml':
            libxml_use_internal_errors(true);
            (new DOMDocument())->loadXML('<a><b></a>');
            Life::$kept[] = simplexml_load_string("<n>$n</n>");
            break;
        case 'database':
            $pdo?->prepare('INSERT INTO visits VALUES (?)')->execute([$n]);
            $pdo?->exec("DELETE FROM visits WHERE n = $n");
            break;
        case 'settings':
            ini_set('memory_limit', '200M');
            ini_set('precision', '5');
            setlocale(LC_ALL, 'C.UTF-8');
            date_default_timezone_set('Asia/Tokyo');
            mb_internal_encoding('ISO-8859-1');
            break;
        case 'output':
            ob_start();
            ob_start(static fn (string $text): string => '');
            echo str_repeat('lost', 10_000);
            while (ob_get_level() > 0) {
                ob_end_clean();
            }
            break;
        case 'exit':
            exit(sprintf('%s %d %d %d', $kind, $n, $_POST['n'], Life::$served));
        case 'exception':
            throw new LogicException("number $n");
        case 'fatal':
            undefined_function();
            // no break
        case 'out-of-memory':
            ini_set('memory_limit', '24M');
            while (true) {
                Life::$kept[] = str_repeat('x', 100_000);
            }
    }
}

$answer = static function () use ($pdo): void {
    Life::$served++;
    act($_GET['kind'], (int) $_GET['n'], $pdo);
    printf('%s %d %d %d', $_GET['kind'], $_GET['n'], $_POST['n'], Life::$served);
};
while (hearth_handle_request($answer)) {
}
