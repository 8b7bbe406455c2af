<?php

/*
 * A framework's database of SQLite that stays open from the start of a worker on. To open one costs a request more than most queries.
 *
 * Promises
 * - Nothing is written, and nothing is thrown. Where the database cannot be opened, requests open their own and find the reason.
 * - A file that was replaced since is not used: a request opens the one that is there. The old one is not closed, because SQLite would
 *   remove the write-ahead log of the new one with it.
 * - A request of Laravel that needs no database does not look at the file.
 */

declare(strict_types=1);

namespace Hearth\Worker;

/** @internal */
final class SqliteFile
{
    /** How long a start waits for a process that writes, in milliseconds. */
    private const PATIENCE = 1000;

    /** @var list<self> Laravel's, held for what they hold open */
    private static array $files = [];

    /**
     * @param list<\PDO> $open held, so that no request closes them
     * @param \Closure(): mixed $reopen lets the framework open the database again
     */
    private function __construct(
        private array $open,
        private string $path,
        private int $inode,
        private \Closure $reopen,
    ) {
    }

    /** Laravel: the default connection, if it is one */
    public static function ofLaravel(\Illuminate\Contracts\Container\Container $app): void
    {
        [$name, $driver] = Databases::defaultOfLaravel($app->make('config'));
        if ($driver !== 'sqlite' || !$app->bound('db')) {
            return;
        }
        self::$files = self::open(
            static function () use ($app): array {
                $connection = $app->make('db')->connection();
                return [$connection->getPdo(), $connection->getReadPdo()];
            },
            static fn (): object => $app->make('db')->reconnect($name),
            static fn () => $app->make('db')->purge($name),
        );
        foreach (self::$files as $file) {
            $file->putInto($app->make('db')->connection());
        }
    }

    /** @return list<self> Symfony: Doctrine's connections */
    public static function ofSymfony(\Symfony\Component\DependencyInjection\ContainerInterface $container): array
    {
        $files = [];
        foreach ($container->has('doctrine') ? $container->get('doctrine')->getConnections() : [] as $connection) {
            $settings = $connection->getParams();
            // Doctrine would create the file.
            if (
                ($settings['driver'] ?? null) === 'pdo_sqlite' && is_file((string) ($settings['path'] ?? ''))
                && method_exists($connection, 'getNativeConnection')
            ) {
                $close = static fn () => $connection->close();
                $files[] = self::open(static fn (): array => [$connection->getNativeConnection()], $close, $close);
            }
        }
        return array_merge(...$files);
    }

    /** Called when a request begins. */
    public function reopenIfReplaced(): void
    {
        if ($this->isReplaced()) {
            ($this->reopen)();
        }
    }

    /** Laravel takes a closure in place of a database, and calls it when a request needs the database. */
    private function putInto(\Illuminate\Database\Connection $connection): void
    {
        [$write, $read] = $this->open;
        $connection->setPdo(fn (): \PDO => $this->isReplaced() ? ($this->reopen)()->getPdo() : $write);
        if ($connection->getRawReadPdo() !== null) {
            $connection->setReadPdo(fn (): \PDO => $this->isReplaced() ? ($this->reopen)()->getReadPdo() : $read);
        }
    }

    private function isReplaced(): bool
    {
        clearstatcache();
        return !is_file($this->path) || fileinode($this->path) !== $this->inode;
    }

    /**
     * @param \Closure(): list<\PDO> $open
     * @return list<self> empty: it is not kept
     */
    private static function open(\Closure $open, \Closure $reopen, \Closure $close): array
    {
        if (!hearth_keep_files()) {
            return [];
        }
        try {
            $connections = $open();
            $path = self::read($connections[0]);
            $connections[0] === end($connections) || self::read(end($connections));
            if ($path !== '') {
                return [new self($connections, $path, (int) fileinode($path), $reopen)];
            }
        } catch (\Throwable) {
            // A request will find the same, and can say for what it needed the database.
        }
        unset($connections);
        $close();
        // Connections in garbage cycles are still open.
        gc_collect_cycles();
        return [];
    }

    /** Lets SQLite read the schema and take the locks that last. Returns the file's path; empty if there is none. */
    private static function read(\PDO $database): string
    {
        $patience = (int) $database->query('PRAGMA busy_timeout')->fetchColumn();
        $database->exec('PRAGMA busy_timeout = ' . min($patience, self::PATIENCE));
        try {
            $database->query('SELECT count(*) FROM sqlite_master')->fetchAll();
        } finally {
            $database->exec("PRAGMA busy_timeout = $patience");
        }
        return (string) $database->query('PRAGMA database_list')->fetchAll(\PDO::FETCH_NUM)[0][2];
    }
}
