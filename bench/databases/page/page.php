<?php

/*
 * The page that all sides of the bench answer: QUERIES prepared queries with one row each, or as many GETs.
 *
 * DATABASE is mysql, pgsql or redis; SERVER a unix socket (PostgreSQL: FOLDER:PORT) or HOST:PORT. AUTHORITY: behind TLS, verified by this file.
 */

declare(strict_types=1);

namespace Bench;

use PDO;
use Redis;

final class Page
{
    public static ?object $connection = null;

    public static function open(bool $persistent = false): object
    {
        $server = getenv('SERVER');
        $authority = getenv('AUTHORITY');
        [$host, $port] = str_contains($server, ':') ? explode(':', $server) : [$server, 0];
        if (getenv('DATABASE') === 'redis') {
            $redis = new Redis();
            if ($authority !== false) {
                $redis->connect("tls://$host", (int) $port, 0, null, 0, 0, ['stream' => ['cafile' => $authority]]);
            } else {
                $persistent ? $redis->pconnect($host, (int) $port) : $redis->connect($host, (int) $port);
            }
            $redis->auth('a password');
            return $redis;
        }
        $place = match (true) {
            getenv('DATABASE') === 'pgsql' => "pgsql:host=$host;port=$port;"
                . ($authority === false ? 'sslmode=disable' : "sslmode=verify-full;sslrootcert=$authority"),
            $port === 0 => "mysql:unix_socket=$host",
            default => "mysql:host=$host;port=$port",
        };
        return new PDO("$place;dbname=shop", 'visitor', 'a password', [
            PDO::ATTR_ERRMODE => PDO::ERRMODE_EXCEPTION,
            PDO::ATTR_EMULATE_PREPARES => false,
            PDO::ATTR_PERSISTENT => $persistent,
        ] + ($authority !== false && getenv('DATABASE') === 'mysql' ? [PDO::MYSQL_ATTR_SSL_CA => $authority] : []));
    }

    public static function answer(object $connection): void
    {
        $queries = (int) getenv('QUERIES');
        $amount = 0;
        for ($i = 1; $i <= $queries; $i++) {
            if ($connection instanceof Redis) {
                $amount += (int) $connection->get("thing:$i");
            } else {
                $statement = $connection->prepare('select id, amount from things where id = ?');
                $statement->execute([$i]);
                $amount += (int) $statement->fetch(PDO::FETCH_ASSOC)['amount'];
            }
        }
        echo "amount $amount;";
    }
}
