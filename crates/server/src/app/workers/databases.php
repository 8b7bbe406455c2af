<?php

/*
 * Opens an application's default connections when a worker starts, so that they stay open across restores.
 *
 * Promises
 * - A connection that cannot be kept is closed again by the framework: requests then open their own, as without Hearth.
 * - Errors are thrown after all connections were tried. Hearth logs them, the worker serves, and a later worker tries again.
 */

declare(strict_types=1);

namespace Hearth\Worker;

/** @internal */
final class Databases
{
    private const DRIVERS = ['mysql', 'mariadb', 'pgsql', 'pdo_mysql', 'pdo_pgsql', 'mysqli'];

    /** Laravel: the default connection, and those to Redis that its sessions, cache and queue use. */
    public static function ofLaravel(\Illuminate\Contracts\Container\Container $app): void
    {
        $config = $app->make('config');
        $attempts = [];
        [$name, $driver] = self::defaultOfLaravel($config);
        if ($app->bound('db') && in_array($driver, [...self::DRIVERS, 'postgres', 'postgresql'], true)) {
            $attempts[] = [
                "the database `$name`" . self::at($config->get("database.connections.$name")),
                static function () use ($app): object {
                    $connection = $app->make('db')->connection();
                    $connection->getPdo();
                    $connection->getReadPdo();
                    return $connection;
                },
                static fn () => $app->make('db')->purge($name),
            ];
        }
        foreach ($app->bound('redis') ? self::redisOfLaravel($config) : [] as $redis) {
            $attempts[] = [
                "the Redis connection `$redis`" . self::at($config->get("database.redis.$redis")),
                static function () use ($app, $redis): object {
                    $connection = $app->make('redis')->connection($redis);
                    $connection->ping();
                    return $connection;
                },
                static fn () => $app->make('redis')->purge($redis),
            ];
        }
        self::open($attempts);
    }

    /** @return array{mixed, ?string} Laravel's default connection: its name and its driver */
    public static function defaultOfLaravel(object $config): array
    {
        $name = $config->get('database.default');
        $url = parse_url((string) $config->get("database.connections.$name.url"), PHP_URL_SCHEME);
        return [$name, $url ?: $config->get("database.connections.$name.driver")];
    }

    /** @return list<string> names of connections */
    private static function redisOfLaravel(object $config): array
    {
        $names = [];
        if ($config->get('session.driver') === 'redis') {
            $names[] = $config->get('session.connection') ?? 'default';
        }
        $cache = $config->get('cache.default');
        if ($config->get("cache.stores.$cache.driver") === 'redis') {
            $names[] = $config->get("cache.stores.$cache.connection") ?? 'default';
        }
        $queue = $config->get('queue.default');
        if ($config->get("queue.connections.$queue.driver") === 'redis') {
            $names[] = $config->get("queue.connections.$queue.connection") ?? 'default';
        }
        $configured = static fn (mixed $name): bool => is_string($name) && is_array($config->get("database.redis.$name"));
        return array_values(array_unique(array_filter($names, $configured)));
    }

    /** Symfony: Doctrine's connections to databases that can be kept. */
    public static function ofSymfony(\Symfony\Component\DependencyInjection\ContainerInterface $container): void
    {
        $attempts = [];
        foreach ($container->has('doctrine') ? $container->get('doctrine')->getConnections() : [] as $connection) {
            if (!in_array($connection->getParams()['driver'] ?? null, [...self::DRIVERS, 'pgsql'], true)) {
                continue;
            }
            $attempts[] = [
                'the database' . self::at($connection->getParams()),
                static function () use ($connection): object {
                    // connect() is not public since DBAL 4
                    method_exists($connection, 'getNativeConnection') ? $connection->getNativeConnection() : $connection->connect();
                    return $connection;
                },
                static fn () => $connection->close(),
            ];
        }
        self::open($attempts);
    }

    /**
     * Logs why a boot has failed: the exception and those that caused it, a line each. $database, ` (the database …)`, is in the first.
     */
    public static function logFailure(\Throwable $reason, string $database): void
    {
        do {
            $place = $reason->getFile() . ':' . $reason->getLine();
            error_log(sprintf('%s: %s%s in %s', $reason::class, $reason->getMessage(), $database, $place));
            $database = '';
        } while ($reason = $reason->getPrevious());
    }

    /** Doctrine's default connection, as a boot that did not reach it names it; empty if the exception has another cause. */
    public static function unreachableOfSymfony(\Throwable $reason, \Symfony\Component\HttpKernel\KernelInterface $kernel): string
    {
        while (!$reason instanceof \PDOException && !$reason instanceof \mysqli_sql_exception) {
            $reason = $reason->getPrevious();
            if ($reason === null) {
                return '';
            }
        }
        try {
            $connections = $kernel->getContainer()->get('doctrine')->getConnections();
        } catch (\Throwable) {
            return ''; // There is no Doctrine, or the kernel has no container yet.
        }
        $connection = $connections['default'] ?? reset($connections);
        return $connection === false ? '' : ' (the database' . self::at($connection->getParams()) . ')';
    }

    /**
     * Names the server of a connection, never its user or password: ` at db.example:3306`.
     *
     * @param array<string, mixed>|null $settings
     */
    public static function at(?array $settings): string
    {
        $url = parse_url((string) ($settings['url'] ?? '')) ?: [];
        $place = $settings['unix_socket'] ?? '' ?: $url['host'] ?? $settings['host'] ?? '';
        $place = is_array($place) ? implode(', ', $place) : (string) $place;
        $port = $url['port'] ?? $settings['port'] ?? '';
        if ($place === '') {
            return '';
        }
        return str_starts_with($place, '/') || $port === '' ? " at $place" : " at $place:$port";
    }

    /** @param list<array{string, callable(): object, callable(): mixed}> $attempts its name, how to open a connection, how to close it */
    private static function open(array $attempts): void
    {
        if (str_starts_with(getenv('HEARTH_DATABASES') ?: '0', '0')) {
            return; // `databases.keep = off`
        }
        $failure = null;
        foreach ($attempts as [$name, $open, $close]) {
            try {
                if (hearth_keep_connection($open())) {
                    continue;
                }
            } catch (\Throwable $reason) {
                $failure ??= new \RuntimeException("$name: " . $reason->getMessage(), 0, $reason);
            }
            $close();
            // Connections in garbage cycles are still open.
            gc_collect_cycles();
        }
        if ($failure !== null) {
            throw $failure;
        }
    }
}
