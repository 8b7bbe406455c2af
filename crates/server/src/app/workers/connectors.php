<?php

/*
 * Routes an application's database connections through Hearth's connectors if host, port and user are equal.
 *
 * Promises
 * - Connections without a connector, to a socket or to several hosts stay unchanged.
 * - No connection gets another database user: a connection uses a connector only if the users are equal.
 * - Encryption options are removed: the connector encrypts, its socket does not.
 */

declare(strict_types=1);

namespace Hearth\Worker;

/** @internal */
final class Connectors
{
    /** Protocols of drivers, with their default ports. */
    private const DRIVERS = [
        'mysql' => ['mysql', 3306],
        'mariadb' => ['mysql', 3306],
        'pdo_mysql' => ['mysql', 3306],
        'mysqli' => ['mysql', 3306],
        'pgsql' => ['postgresql', 5432],
        'pdo_pgsql' => ['postgresql', 5432],
        'redis' => ['redis', 6379],
    ];

    /** libpq's options for encryption. */
    private const SSL = ['sslmode', 'sslcert', 'sslkey', 'sslrootcert', 'ssl_ca', 'ssl_cert', 'ssl_key', 'ssl_capath', 'ssl_cipher', 'context', 'ssl'];

    /** Keys with several hosts: Laravel's, Doctrine's, and Doctrine's before DBAL 3. */
    private const SEVERAL = ['read', 'write', 'primary', 'replica', 'master', 'slaves'];

    /** Laravel: `database.connections` and `database.redis`, before a connection uses them. */
    public static function ofLaravel(object $config): void
    {
        if (getenv('HEARTH_CONNECTORS') === false) {
            return;
        }
        $parsed = static fn (array $settings): array => isset($settings['url'])
            ? (new \Illuminate\Support\ConfigurationUrlParser())->parseConfiguration($settings)
            : $settings;
        foreach ((array) $config->get('database.connections') as $name => $settings) {
            if (is_array($settings) && ($through = self::through($parsed($settings))) !== null) {
                $config->set("database.connections.$name", $through);
            }
        }
        $predis = $config->get('database.redis.client') === 'predis';
        foreach ((array) $config->get('database.redis') as $name => $settings) {
            if (in_array($name, ['client', 'options', 'clusters'], true) || !is_array($settings)) {
                continue;
            }
            $settings = $parsed($settings);
            // the client's own options for TLS
            $host = preg_replace('#^(tls|ssl|tcp|rediss?)://#i', '', (string) ($settings['host'] ?? ''));
            $through = self::through(['driver' => 'redis', 'host' => $host] + $settings);
            if ($through === null) {
                continue;
            }
            $place = $through['host'];
            unset($through['driver'], $through['scheme']);
            if ($predis) {
                unset($through['host'], $through['port']);
                $through = ['scheme' => 'unix', 'path' => $place] + $through;
            }
            $config->set("database.redis.$name", $through);
        }
    }

    /** Symfony: Doctrine's connections, none of which is open. */
    public static function ofSymfony(\Symfony\Component\DependencyInjection\ContainerInterface $container): void
    {
        if (getenv('HEARTH_CONNECTORS') === false || !$container->has('doctrine')) {
            return;
        }
        foreach ($container->get('doctrine')->getConnections() as $connection) {
            $through = self::through($connection->getParams());
            if ($through !== null) {
                (function () use ($through): void {
                    $this->params = $through;
                })->bindTo($connection, \Doctrine\DBAL\Connection::class)();
            }
        }
    }

    /**
     * @param array<array-key, mixed> $settings as Laravel and Doctrine write them
     * @return array<array-key, mixed>|null null: there is no connector for this server
     */
    private static function through(array $settings): ?array
    {
        [$protocol, $port] = self::DRIVERS[$settings['driver'] ?? ''] ?? [null, 0];
        $host = $settings['host'] ?? null;
        if ($protocol === null || !is_string($host) || ($settings['unix_socket'] ?? '') !== '') {
            return null;
        }
        // These keys override the others later, so the others do not tell the connection's target.
        foreach (self::SEVERAL as $several) {
            if (!empty($settings[$several])) {
                return null;
            }
        }
        $port = (int) ($settings['port'] ?? $port);
        $user = (string) ($settings['username'] ?? $settings['user'] ?? '');
        foreach (json_decode((string) getenv('HEARTH_CONNECTORS'), true) as $connector) {
            if ($connector['protocol'] !== $protocol || strcasecmp($connector['host'], $host) !== 0 || $connector['port'] !== $port) {
                continue;
            }
            // Redis has a default user for clients that name none.
            $itsUser = $connector['user'] === '' && $protocol === 'redis' ? 'default' : $connector['user'];
            if ($user !== '' && $itsUser !== null && $user !== $itsUser) {
                continue;
            }
            $settings = array_diff_key($settings, array_flip(self::SSL));
            foreach (['options', 'driverOptions'] as $options) {
                if (is_array($settings[$options] ?? null)) {
                    $settings[$options] = array_diff_key($settings[$options], self::encryption());
                }
            }
            if ($protocol === 'mysql') {
                return ['unix_socket' => $connector['place'], 'host' => 'localhost'] + $settings;
            }
            // libpq takes a folder for a host, phpredis a socket if there is no port
            return ['host' => $connector['place'], 'port' => $protocol === 'redis' ? 0 : 5432] + $settings;
        }
        return null;
    }

    /** @return array<array-key, true> drivers' options for encryption */
    private static function encryption(): array
    {
        $options = array_fill_keys(self::SSL, true);
        foreach (['KEY', 'CERT', 'CA', 'CAPATH', 'CIPHER', 'VERIFY_SERVER_CERT'] as $name) {
            foreach (['PDO::MYSQL_ATTR_SSL_' . $name, 'Pdo\\Mysql::ATTR_SSL_' . $name] as $constant) {
                if (defined($constant)) {
                    $options[constant($constant)] = true;
                    break;
                }
            }
        }
        return $options;
    }
}
