<?php

/**
 * What the tests talk to: the scripted origin (crates/testkit), and a listener: the broker itself or its stand-in. Each is started when it is first
 * asked for, and ended with the process that started it.
 */

declare(strict_types=1);

namespace Hearth\Tests;

use Hearth\Egress\Broker;

final class Servers
{
    /** The application of `hearth channels`. */
    public const CHANNELS = ['id' => '3', 'key' => 'key', 'secret' => 'secret'];

    /** @var array<string, resource> */
    private static array $processes = [];

    /** @var ?array{string, string} */
    private static ?array $origin = null;

    private static ?string $folder = null;

    /** A folder that exists only during this run. */
    public static function folder(): string
    {
        if (self::$folder === null) {
            self::$folder = sys_get_temp_dir() . '/hearth-packages-' . bin2hex(random_bytes(4));
            mkdir(self::$folder, 0700);
            $owner = getmypid();
            register_shutdown_function(static function () use ($owner): void {
                if (getmypid() !== $owner) {
                    return;
                }
                foreach (self::$processes as $process) {
                    proc_terminate($process, SIGKILL);
                    proc_close($process);
                }
                foreach (glob(self::$folder . '/{*/*/*,*/*,*}', GLOB_BRACE) ?: [] as $file) {
                    is_dir($file) && !is_link($file) ? rmdir($file) : unlink($file);
                }
                rmdir(self::$folder);
            });
        }
        return self::$folder;
    }

    public static function plain(string $path = ''): string
    {
        return self::origin()[0] . $path;
    }

    public static function secure(string $path = ''): string
    {
        return self::origin()[1] . $path;
    }

    /** An origin of its own, on another port of the same host. */
    public static function another(string $path = ''): string
    {
        static $url = null;
        $folder = self::folder() . '/another-origin';
        @mkdir($folder);
        $url ??= rtrim(self::start('another', [self::program('scripted-origin'), '--folder', $folder], 2)[0], '/');
        return $url . $path;
    }

    /** The authority that signed the origin's certificate. */
    public static function authority(): string
    {
        self::origin();
        return self::folder() . '/authority.pem';
    }

    /** @return array{string, string} certificate and key of a client */
    public static function client(): array
    {
        self::origin();
        return [self::folder() . '/client.pem', self::folder() . '/client.key'];
    }

    /** @return array{string, string} */
    private static function origin(): array
    {
        if (self::$origin === null) {
            [$plain, $secure] = self::start('origin', [self::program('scripted-origin'), '--folder', self::folder()], 2);
            // A name would need /etc/hosts, which small Debians lack.
            self::$origin = [rtrim($plain, '/'), str_replace('localhost', '127.0.0.1', rtrim($secure, '/'))];
        }
        return self::$origin;
    }

    /** A port with neither TLS nor HTTP. */
    public static function babbler(): string
    {
        static $name = null;
        $code = '$l = stream_socket_server("tcp://127.0.0.1:0"); echo stream_socket_get_name($l, false), "\n";
            while (true) { $c = stream_socket_accept($l, 3600); fread($c, 9999); fwrite($c, "what do you say?\r\n"); fclose($c); }';
        $name ??= self::start('babbler', [PHP_BINARY, '-n', '-r', $code], 1)[0];
        return "https://{$name}/";
    }

    /** A port without a listener. */
    public static function closedPort(): string
    {
        $socket = stream_socket_server('tcp://127.0.0.1:0');
        $name = stream_socket_get_name($socket, false);
        fclose($socket);
        return "http://{$name}";
    }

    /** The listener of this run: HEARTH_TEST_LISTENER is `broker` or `stand-in`. */
    public static function broker(): Broker
    {
        return self::listener() === 'broker' ? self::real() : self::standIn();
    }

    public static function listener(): string
    {
        $listener = getenv('HEARTH_TEST_LISTENER');
        return $listener === false ? 'stand-in' : $listener;
    }

    public static function socket(): string
    {
        self::broker();
        return self::folder() . '/' . self::listener() . '/egress.sock';
    }

    public static function token(): string
    {
        return (string) file_get_contents(dirname(self::socket()) . '/egress.token');
    }

    /** A broker that traces, without a collector: the outgoing header fields are what is tested. */
    public static function tracing(): Broker
    {
        return self::real('tracing', ['HEARTH_TRACES_ENDPOINT=http://127.0.0.1:1']);
    }

    /** @param list<string> $settings */
    private static function real(string $name = 'broker', array $settings = []): Broker
    {
        $folder = self::folder() . "/{$name}";
        if (!isset(self::$processes[$name])) {
            @mkdir($folder, 0700);
            // On a busy machine a call may wait for its connection: that is no reason to make it directly.
            $settings[] = 'HEARTH_EGRESS_QUEUE_TIMEOUT=30s';
            $hearth = ['env', ...$settings, getenv('HEARTH_BIN') ?: self::program('hearth')];
            self::start($name, [...$hearth, 'egress', '--socket', "{$folder}/egress.sock"], 0);
            self::wait("{$folder}/egress.sock");
        }
        return new Broker("{$folder}/egress.sock");
    }

    public static function standIn(): Broker
    {
        $folder = self::folder() . '/stand-in';
        if (!isset(self::$processes['stand-in'])) {
            @mkdir($folder, 0700);
            touch("{$folder}/calls");
            self::start('stand-in', [PHP_BINARY, '-n', __DIR__ . '/stand-in.php', $folder], 1);
        }
        return new Broker("{$folder}/egress.sock");
    }

    /** A separate stand-in for a test that stops it; after a restart it has another token. */
    public static function mortal(): Broker
    {
        $folder = self::folder() . '/mortal';
        @mkdir($folder, 0700);
        @unlink("{$folder}/egress.sock");
        self::start('mortal', [PHP_BINARY, '-n', __DIR__ . '/stand-in.php', $folder], 1);
        return new Broker("{$folder}/egress.sock", static fn () => null);
    }

    /** `hearth channels`: the address of its HTTP API. */
    public static function channels(): string
    {
        if (!isset(self::$processes['channels'])) {
            $program = getenv('HEARTH_BIN') ?: self::program('hearth');
            self::start('channels', [$program, 'channels', '--log-format', 'text', '--listen', '127.0.0.1:0', '--admin', '127.0.0.1:0', '--app', implode(':', self::CHANNELS)], 0);
        }
        return self::said('channels', 'ready on ');
    }

    /**
     * `php artisan COMMAND` on any port, for the application in `$folder`: the process and the address that it serves.
     *
     * @param list<string> $command
     * @return array{int, string}
     */
    public static function artisan(string $name, array $command, string $folder): array
    {
        self::start($name, self::artisanCommand([$command[0], '--host=127.0.0.1', '--port=0', ...array_slice($command, 1)], $folder), 0);
        $address = self::said($name, 'ready on ');
        return [proc_get_status(self::$processes[$name])['pid'], $address];
    }

    /**
     * `php artisan COMMAND`, which ends: its exit status and output.
     *
     * @param list<string> $command
     * @return array{int, string}
     */
    public static function artisanEnds(array $command, string $folder): array
    {
        exec(implode(' ', array_map(escapeshellarg(...), self::artisanCommand($command, $folder))) . ' 2>&1', $lines, $status);
        return [$status, implode("\n", $lines)];
    }

    /**
     * @param list<string> $command
     * @return list<string>
     */
    private static function artisanCommand(array $command, string $folder): array
    {
        // Its own run folder: other servers of this machine, which may hang, are not asked.
        $environment = ["APP_BASE_PATH={$folder}", "HEARTH_SERVER_RUN_DIR={$folder}/run", 'HEARTH_LOG_FORMAT=text', 'HEARTH_BIN=' . (getenv('HEARTH_BIN') ?: self::program('hearth'))];
        if (getenv('HEARTH_WORKER_DIR')) {
            $environment[] = 'HEARTH_WORKER_DIR=' . getenv('HEARTH_WORKER_DIR');
        }
        if (getenv('HEARTH_LIBRARIES')) {
            $environment[] = 'LIBRARIES=' . getenv('HEARTH_LIBRARIES');
        }
        // hearth refuses unknown variables with its prefix.
        foreach (array_keys(getenv()) as $name) {
            if (str_starts_with($name, 'HEARTH_')) {
                array_unshift($environment, '-u', $name);
            }
        }
        return ['env', ...$environment, PHP_BINARY, dirname(__DIR__, 2) . '/laravel/tests/artisan.php', ...$command];
    }

    /**
     * A folder of this run with these files.
     *
     * @param array<string, string> $files
     */
    public static function site(string $name, array $files): string
    {
        $folder = self::folder() . "/{$name}";
        foreach ($files as $file => $text) {
            @mkdir(dirname("{$folder}/{$file}"), 0700, true);
            file_put_contents("{$folder}/{$file}", $text);
        }
        return $folder;
    }

    /** Sends a signal to a process that `artisan()` has started, and returns its exit status. */
    public static function exitOf(string $name, int $signal): int
    {
        proc_terminate(self::$processes[$name], $signal);
        return self::awaitExit($name);
    }

    public static function awaitExit(string $name): int
    {
        $status = proc_close(self::$processes[$name]);
        unset(self::$processes[$name]);
        return $status;
    }

    /** Events that it has published, one for each channel. */
    public static function published(): int
    {
        self::channels();
        $status = json_decode((string) file_get_contents(self::said('channels', 'admin on ') . '/status'), true, 512, JSON_THROW_ON_ERROR);
        return array_sum(array_column($status['realtime']['applications'], 'published'));
    }

    private static function said(string $name, string $words): string
    {
        for ($i = 0; $i < 600; $i++) {
            if (preg_match("/^hearth: {$words}(.+)$/m", self::log($name), $match) === 1) {
                return $match[1];
            }
            usleep(50_000);
        }
        throw new \RuntimeException("{$name} has never said {$words}: " . self::log($name));
    }

    public static function end(string $name): void
    {
        proc_terminate(self::$processes[$name], SIGKILL);
        proc_close(self::$processes[$name]);
        unset(self::$processes[$name]);
    }

    /**
     * Returns the stand-in's calls since the last query.
     *
     * @return list<array{method: string, target: string, control: string, fields: array<string, list<string>>}>
     */
    public static function calls(string $listener = 'stand-in'): array
    {
        $file = self::folder() . "/{$listener}/calls";
        $lines = is_file($file) ? array_filter(explode("\n", (string) file_get_contents($file))) : [];
        is_file($file) ? file_put_contents($file, '') : null;
        return array_values(array_map(static fn (string $line): array => json_decode($line, true, 512, JSON_THROW_ON_ERROR), $lines));
    }

    /** Returns a server's log output. */
    public static function log(string $name): string
    {
        return (string) @file_get_contents(self::folder() . "/{$name}.log");
    }

    private static function program(string $name): string
    {
        $folder = getenv('HEARTH_WORKER_DIR') ?: (getenv('CARGO_TARGET_DIR') ?: __DIR__ . '/../../../target') . '/debug';
        is_executable("{$folder}/{$name}") || throw new \RuntimeException("{$folder}/{$name} is missing: cargo build -p testkit -p server");
        return "{$folder}/{$name}";
    }

    /**
     * @param list<string> $command
     * @return list<string> the first lines of its output
     */
    private static function start(string $name, array $command, int $lines): array
    {
        $log = self::folder() . "/{$name}.log";
        // hearth refuses unknown variables with its prefix.
        $environment = array_filter(getenv(), static fn (string $key): bool => !str_starts_with($key, 'HEARTH_'), ARRAY_FILTER_USE_KEY);
        $process = proc_open($command, [['file', '/dev/null', 'r'], ['pipe', 'w'], ['file', $log, 'a']], $pipes, null, $environment);
        $process !== false || throw new \RuntimeException("cannot start {$command[0]}");
        self::$processes[$name] = $process;
        $said = [];
        while (count($said) < $lines) {
            $line = fgets($pipes[1]);
            $line !== false || throw new \RuntimeException("{$name} has ended: " . file_get_contents($log));
            $said[] = trim($line);
        }
        return $said;
    }

    private static function wait(string $socket): void
    {
        for ($i = 0; $i < 600; $i++) {
            if (is_resource($connection = @stream_socket_client("unix://{$socket}"))) {
                fclose($connection);
                return;
            }
            usleep(50_000);
        }
        throw new \RuntimeException("no process listens on {$socket}: " . @file_get_contents(self::folder() . '/broker.log'));
    }
}
