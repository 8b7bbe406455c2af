<?php
// The databases' clients, as applications use them. look() returns all that the server reports about a session, without the session's
// own name and clock. Methods named do_* leave something behind, in every way that requests do.

declare(strict_types=1);

abstract class Session
{
    /** @var list<mixed> what a request does not close */
    protected array $held = [];
    protected mixed $client = null;

    public function __construct(protected readonly string $server)
    {
    }

    /** The contents of a secret's file, if there is one: it may change while the server runs. */
    protected function password(): string
    {
        $file = getenv('PASSWORD_FILE');
        return $file ? trim((string) file_get_contents($file)) : 'a password';
    }

    /** Changes the password of this session's user. */
    public function rotate(string $password): void
    {
        throw new LogicException('not here');
    }

    abstract public function open(): void;
    abstract public function id(): int|string;

    /** @return array<string, mixed> */
    abstract public function look(): array;

    public function isOpen(): bool
    {
        return $this->client !== null;
    }

    public function close(): void
    {
        $this->client = null;
    }

    public function do_close(): void
    {
        $this->close();
    }

    public function do_reconnect(): void
    {
        $this->close();
        $this->open();
    }
}

abstract class MariaDb extends Session
{
    abstract protected function run(string $sql): void;
    /** @return list<array<string, mixed>> */
    abstract protected function rows(string $sql): array;

    public function rotate(string $password): void
    {
        $this->run("alter user visitor@localhost identified by '$password'");
    }

    protected function initialise(): void
    {
        $this->run("set session sql_mode='STRICT_ALL_TABLES,ANSI_QUOTES'");
        $this->run("set names 'utf8mb4' collate 'utf8mb4_unicode_ci'");
    }

    public function id(): int
    {
        return (int) $this->rows('select connection_id() id')[0]['id'];
    }

    public function look(): array
    {
        // State of the last statement comes first, because look() changes it.
        $own = $this->rows('select last_insert_id() inserted, @mine mine, database() name, current_user() user, current_role() role, is_used_lock(\'mine\') is null free')[0];
        // MariaDB's alone; on MySQL what it has written would be seen in `rows`.
        $own['transaction'] = str_contains($this->rows('select version() v')[0]['v'], 'MariaDB') ? $this->rows('select @@in_transaction t')[0]['t'] : '0';
        $own['rows'] = $this->rows('select count(*) n from shop.things')[0]['n'];
        $own['profiles'] = $this->rows('show profiles');
        try {
            $this->run('select * from shop.temporary');
            $own['temporary'] = true;
        } catch (Throwable) {
            $own['temporary'] = false;
        }
        $volatile = ['timestamp', 'rand_seed1', 'rand_seed2', 'pseudo_thread_id', 'error_count', 'warning_count', 'last_gtid', 'gtid_executed', 'statement_id'];
        foreach ($this->rows('show session variables') as $row) {
            if (!in_array($row['Variable_name'], $volatile, true) && !str_starts_with($row['Variable_name'], 'innodb_')) {
                $own[$row['Variable_name']] = $row['Value'];
            }
        }
        return $own;
    }

    public function do_transaction(): void
    {
        $this->run('begin');
        $this->run('insert into shop.things values (null, 1)');
    }

    public function do_transaction_exit(): void
    {
        $this->do_transaction();
        exit;
    }

    public function do_transaction_fatal(): void
    {
        $this->do_transaction();
        no_such_function();
    }

    public function do_failed_statement(): void
    {
        $this->run('begin');
        try {
            $this->run('selct');
        } catch (Throwable) {
        }
    }

    public function do_settings(): void
    {
        $this->run("set autocommit=0, sql_mode='', time_zone='+05:00', foreign_key_checks=0, wait_timeout=7, lc_time_names='de_DE'");
        $this->run('set session transaction isolation level read uncommitted');
        $this->run('set session transaction read only');
    }

    public function do_names(): void
    {
        $this->run("set names 'latin1'");
    }

    public function do_use(): void
    {
        $this->run('use mysql');
    }

    public function do_role(): void
    {
        $this->run('set role limited');
    }

    public function do_variable(): void
    {
        $this->run("set @mine='secret of a visitor'");
    }

    public function do_lock(): void
    {
        $this->rows("select get_lock('mine', 5) l");
    }

    public function do_lock_tables(): void
    {
        $this->run('lock tables shop.things write');
    }

    public function do_global_read_lock(): void
    {
        $this->run('flush tables with read lock');
    }

    public function do_temporary_table(): void
    {
        $this->run('create temporary table shop.temporary (a int)');
    }

    public function do_insert_id(): void
    {
        $this->run('insert into shop.things values (null, 1)');
        $this->run('delete from shop.things');
    }

    public function do_savepoint(): void
    {
        $this->run('begin');
        $this->run('savepoint s');
    }

    public function do_handler(): void
    {
        $this->run('handler shop.things open as h');
    }

    public function do_profiling(): void
    {
        $this->run('set profiling=1');
        $this->run("select 'a secret'");
    }

    public function do_rand_seed(): void
    {
        $this->run('set rand_seed1=1, rand_seed2=2');
    }

    public function do_xa(): void
    {
        $this->run("xa start 'x'");
    }

    public function do_killed(): void
    {
        try {
            $this->run('kill connection connection_id()');
        } catch (Throwable) {
        }
    }
}

final class PdoMysql extends MariaDb
{
    public function open(): void
    {
        $this->client = new PDO("mysql:unix_socket={$this->server};dbname=shop;charset=utf8mb4", 'visitor', $this->password(), [
            PDO::ATTR_ERRMODE => PDO::ERRMODE_EXCEPTION, PDO::ATTR_EMULATE_PREPARES => false,
        ]);
        $this->initialise();
        $this->client->prepare("set time_zone='+02:00'")->execute();
    }

    protected function run(string $sql): void
    {
        $this->client->exec($sql);
    }

    protected function rows(string $sql): array
    {
        return $this->client->query($sql)->fetchAll(PDO::FETCH_ASSOC);
    }

    public function do_prepared(): void
    {
        $statement = $this->client->prepare('select ? a union select ?');
        $statement->execute([1, 2]);
        $statement->fetch();
        $this->held[] = $statement;
    }

    public function do_unbuffered(): void
    {
        $this->client->setAttribute(PDO::MYSQL_ATTR_USE_BUFFERED_QUERY, false);
        $this->held[] = $statement = $this->client->query('select 1 union select 2 union select 3');
        $statement->fetch();
    }

    public function do_unread(): void
    {
        $this->client->setAttribute(PDO::MYSQL_ATTR_USE_BUFFERED_QUERY, false);
        $this->held[] = $this->client->query('select * from seq_1_to_200000');
    }

    public function do_pdo_transaction(): void
    {
        $this->client->beginTransaction();
        $this->run('insert into shop.things values (null, 1)');
    }
}

final class MysqliClient extends MariaDb
{
    public function open(): void
    {
        mysqli_report(MYSQLI_REPORT_ERROR | MYSQLI_REPORT_STRICT);
        $this->client = mysqli_init();
        $this->client->real_connect('localhost', 'visitor', $this->password(), 'shop', 0, $this->server);
        $this->client->set_charset('utf8mb4');
        $this->initialise();
    }

    protected function run(string $sql): void
    {
        $this->client->query($sql);
    }

    protected function rows(string $sql): array
    {
        return $this->client->query($sql)->fetch_all(MYSQLI_ASSOC);
    }

    public function do_charset(): void
    {
        $this->client->set_charset('latin1');
    }

    public function do_select_database(): void
    {
        $this->client->select_db('mysql');
    }

    public function do_several(): void
    {
        $this->client->multi_query('select 1; select 2; set @mine=3');
        do {
            $this->client->store_result();
        } while ($this->client->more_results() && $this->client->next_result());
    }

    public function do_several_under_way(): void
    {
        $this->client->multi_query('select 1; select sleep(0.2); set @mine=3');
        $this->client->store_result();
    }

    public function do_async_answered(): void
    {
        $this->client->query('update shop.things set amount = 2', MYSQLI_ASYNC);
        usleep(100000);
    }

    public function do_async_under_way(): void
    {
        $this->client->query('select sleep(0.2)', MYSQLI_ASYNC);
    }

    public function do_change_user(): void
    {
        $this->client->change_user('visitor', $this->password(), 'mysql');
    }

    public function do_cursor(): void
    {
        $statement = $this->client->prepare('select * from seq_1_to_10');
        $statement->attr_set(MYSQLI_STMT_ATTR_CURSOR_TYPE, MYSQLI_CURSOR_TYPE_READ_ONLY);
        $statement->execute();
        $statement->fetch();
        $this->held[] = $statement;
    }
}

abstract class Postgres extends Session
{
    abstract protected function run(string $sql): void;
    /** @return list<array<string, mixed>> */
    abstract protected function rows(string $sql): array;

    public function rotate(string $password): void
    {
        $this->run("alter role visitor password '$password'");
    }

    public function id(): int
    {
        return (int) $this->rows('select pg_backend_pid() id')[0]['id'];
    }

    public function look(): array
    {
        // The empty schema of temporary tables stays, as does an own setting, without its value.
        $own = $this->rows("select current_user me, session_user owner, regexp_replace(current_schemas(true)::text, 'pg_temp_[0-9]+,', '') schemas,
            coalesce(current_setting('my.own', true), '') mine, (select count(*) from shop.things) things,
            (select count(*) from pg_prepared_statements where name not like 'pdo_stmt%') prepared, (select count(*) from pg_cursors where name <> '') cursors,
            (select count(*) from pg_listening_channels()) listening,
            (select count(*) from pg_locks where pid = pg_backend_pid() and locktype = 'advisory') locks,
            (select count(*) from pg_class where relname = 'temporary') temporary")[0];
        $own['seeded'] = is_file(__DIR__ . '/seeded') && $this->random() === file_get_contents(__DIR__ . '/seeded');
        foreach ($this->rows("select name, setting from pg_settings where name <> 'my.own'") as $row) {
            $own[$row['name']] = $row['setting'];
        }
        return $own;
    }

    public function do_transaction(): void
    {
        $this->run('begin');
        $this->run('insert into shop.things values (1)');
    }

    public function do_transaction_exit(): void
    {
        $this->do_transaction();
        exit;
    }

    public function do_transaction_fatal(): void
    {
        $this->do_transaction();
        no_such_function();
    }

    public function do_failed_transaction(): void
    {
        $this->run('begin');
        try {
            $this->run('selct');
        } catch (Throwable) {
        }
    }

    private function random(): string
    {
        return $this->rows('select random()::text r')[0]['r'];
    }

    public function do_seed(): void
    {
        $this->run('select setseed(0.5)');
        file_put_contents(__DIR__ . '/seeded', $this->random());
        $this->run('select setseed(0.5)');
    }

    public function do_settings(): void
    {
        $this->run("set timezone='Asia/Tokyo'; set search_path='pg_catalog'; set client_encoding='latin1'; set datestyle='German'");
        $this->run("set statement_timeout='9s'; set work_mem='9MB'; set application_name='visitor'");
        $this->run('set session characteristics as transaction isolation level serializable');
    }

    public function do_role(): void
    {
        $this->run('set role other');
    }

    public function do_authorization(): void
    {
        $this->run('set session authorization other');
    }

    public function do_own_setting(): void
    {
        $this->run("set my.own='secret of a visitor'");
    }

    public function do_advisory_lock(): void
    {
        $this->rows('select pg_advisory_lock(7)');
    }

    public function do_temporary_table(): void
    {
        $this->run('create temporary table temporary (a int)');
    }

    public function do_listen(): void
    {
        $this->run('listen visitors');
    }

    public function do_listen_and_notify(): void
    {
        $this->run('listen visitors');
        $this->run("notify visitors, 'secret'");
    }

    public function do_prepared_in_sql(): void
    {
        $this->run('prepare mine as select 1');
    }

    public function do_cursor(): void
    {
        $this->run('begin');
        $this->run('declare mine cursor for select generate_series(1, 1000)');
    }

    public function do_cursor_with_hold(): void
    {
        $this->run('declare mine cursor with hold for select generate_series(1, 1000)');
    }

    public function do_prepared_transaction(): void
    {
        $this->run('begin');
        $this->run('savepoint s');
        $this->run("set local timezone='Asia/Tokyo'");
    }

    public function do_killed(): void
    {
        try {
            $this->rows('select pg_terminate_backend(pg_backend_pid())');
        } catch (Throwable) {
        }
    }
}

final class PdoPgsql extends Postgres
{
    public function open(): void
    {
        $this->client = new PDO("pgsql:host={$this->server};dbname=shop", 'visitor', $this->password(), [PDO::ATTR_ERRMODE => PDO::ERRMODE_EXCEPTION]);
        $this->client->prepare("set names 'utf8'")->execute();
        $this->client->prepare("set time zone 'Europe/Berlin'")->execute();
        $this->client->exec('set search_path to shop, public');
    }

    protected function run(string $sql): void
    {
        $this->client->exec($sql);
    }

    protected function rows(string $sql): array
    {
        return $this->client->query($sql)->fetchAll(PDO::FETCH_ASSOC);
    }

    public function do_prepared(): void
    {
        $statement = $this->client->prepare('select ?::int');
        $statement->execute([1]);
        $this->held[] = $statement;
    }

    public function do_pdo_transaction(): void
    {
        $this->client->beginTransaction();
        $this->run('insert into shop.things values (1)');
    }
}

final class PgsqlClient extends Postgres
{
    public function open(): void
    {
        $this->client = pg_connect("host={$this->server} dbname=shop user=visitor password='{$this->password()}'", PGSQL_CONNECT_FORCE_NEW);
        pg_query($this->client, 'set search_path to shop, public');
    }

    protected function run(string $sql): void
    {
        if (@pg_query($this->client, $sql) === false) {
            throw new RuntimeException(pg_last_error($this->client));
        }
    }

    protected function rows(string $sql): array
    {
        return pg_fetch_all(pg_query($this->client, $sql));
    }

    public function close(): void
    {
        pg_close($this->client);
        parent::close();
    }

    public function do_copy_in(): void
    {
        pg_query($this->client, 'copy shop.things from stdin');
        pg_put_line($this->client, "1\n");
    }

    public function do_copy_out(): void
    {
        pg_send_query($this->client, 'copy (select generate_series(1, 100000)) to stdout');
        usleep(50000);
    }

    public function do_sent_and_under_way(): void
    {
        pg_send_query($this->client, 'select pg_sleep(0.2)');
    }

    public function do_sent_and_answered(): void
    {
        pg_send_query($this->client, 'select 1');
        usleep(100000);
    }

    public function do_prepared(): void
    {
        pg_prepare($this->client, 'visitors', 'select $1::int');
        pg_execute($this->client, 'visitors', [1]);
    }
}

/** Parses RESP without a client library, as Predis does over a stream. */
final class RedisStream extends Session
{
    public function open(): void
    {
        $this->client = stream_socket_client("unix://{$this->server}");
        stream_set_timeout($this->client, 5);
        $this->command('AUTH', $this->password());
        $this->command('SELECT', '2');
    }

    public function isOpen(): bool
    {
        return is_resource($this->client);
    }

    public function close(): void
    {
        fclose($this->client);
    }

    public function command(string ...$words): mixed
    {
        $this->send(...$words);
        return $this->answer();
    }

    private function send(string ...$words): void
    {
        $text = '*' . count($words) . "\r\n";
        foreach ($words as $word) {
            $text .= '$' . strlen($word) . "\r\n$word\r\n";
        }
        fwrite($this->client, $text);
    }

    private function answer(): mixed
    {
        $line = rtrim((string) fgets($this->client), "\r\n");
        $rest = substr($line, 1);
        if ($line === '') {
            throw new RuntimeException('no answer');
        }
        switch ($line[0]) {
            case '$':
            case '=':
                return $rest === '-1' ? null : substr((string) stream_get_contents($this->client, (int) $rest + 2), 0, -2);
            case '*':
            case '>':
            case '%':
                $values = [];
                for ($left = (int) $rest * ($line[0] === '%' ? 2 : 1); $left > 0; $left--) {
                    $values[] = $this->answer();
                }
                return $values;
            default:
                return $line[0] === '+' || $line[0] === ':' ? $rest : $line;
        }
    }

    public function rotate(string $password): void
    {
        $this->command('CONFIG', 'SET', 'requirepass', $password);
    }

    public function id(): int|string
    {
        return $this->command('CLIENT', 'ID');
    }

    public function look(): array
    {
        $line = '';
        foreach (explode("\n", (string) $this->command('CLIENT', 'LIST', 'ID', (string) $this->id())) as $found) {
            $line .= $found;
        }
        preg_match_all('/(name|flags|db|sub|psub|ssub|multi|user|resp|redir|watch)=(\S*)/', $line, $pairs);
        return array_combine($pairs[1], $pairs[2]) + ['ping' => $this->command('PING')];
    }

    public function do_select(): void
    {
        $this->command('SELECT', '5');
    }

    public function do_name(): void
    {
        $this->command('CLIENT', 'SETNAME', 'visitor');
    }

    public function do_multi(): void
    {
        $this->command('MULTI');
        $this->command('SET', 'a', 'b');
    }

    public function do_multi_exit(): void
    {
        $this->do_multi();
        exit;
    }

    public function do_watch(): void
    {
        $this->command('WATCH', 'a');
    }

    public function do_subscribe(): void
    {
        $this->command('SUBSCRIBE', 'visitors');
    }

    public function do_resp3(): void
    {
        $this->command('HELLO', '3');
    }

    public function do_tracking(): void
    {
        $this->command('CLIENT', 'TRACKING', 'on', 'BCAST');
    }

    public function do_error(): void
    {
        $this->command('NO', 'SUCH', 'COMMAND');
    }

    public function do_other_user(): void
    {
        $this->command('ACL', 'SETUSER', 'other', 'on', '>x', '+@all', '~*');
        $this->command('AUTH', 'other', 'x');
    }

    public function do_no_answers(): void
    {
        $this->send('CLIENT', 'REPLY', 'OFF');
        $this->send('SET', 'a', 'b');
    }

    public function do_unread(): void
    {
        $this->send('PING');
        usleep(50000);
    }

    public function do_under_way(): void
    {
        $this->send('BLPOP', 'nothing', '1');
    }

    public function do_half_sent(): void
    {
        fwrite($this->client, "*2\r\n\$3\r\nGE");
    }

    /** TLS by surprise: a ClientHello where a command belongs. */
    public function do_encrypt(): void
    {
        fwrite($this->client, "\x16\x03\x01\x00\x2f\x01\x00\x00\x2b\x03\x03" . random_bytes(32) . "\x00\x00\x02\x13\x01\x01\x00\x00\x00");
    }

    public function do_half_pipeline(): void
    {
        fwrite($this->client, "*1\r\n\$4\r\nPING\r\n*2\r\n\$3\r\nGE");
        $this->answer();
    }

    public function do_killed(): void
    {
        $this->command('CLIENT', 'KILL', 'ID', (string) $this->id(), 'SKIPME', 'no');
    }
}

final class PhpRedis extends Session
{
    public function open(): void
    {
        $client = new Redis();
        $client->connect($this->server);
        $client->auth($this->password());
        $client->select(2);
        $this->client = $client;
    }

    public function id(): int
    {
        return $this->client->client('id');
    }

    public function look(): array
    {
        $id = $this->id();
        foreach ($this->client->client('list') as $client) {
            if ((int) $client['id'] === $id) {
                $keys = ['name', 'flags', 'db', 'sub', 'psub', 'multi', 'user', 'resp'];
                return array_intersect_key($client, array_flip($keys)) + ['ping' => $this->client->ping('x')];
            }
        }
        return [];
    }

    public function do_select(): void
    {
        $this->client->select(5);
    }

    public function do_name(): void
    {
        $this->client->client('setname', 'visitor');
    }

    public function do_no_evict(): void
    {
        $this->client->rawCommand('CLIENT', 'NO-EVICT', 'on');
    }

    public function do_multi(): void
    {
        $this->client->multi();
        $this->client->set('a', 'b');
    }

    public function do_watch(): void
    {
        $this->client->watch('a');
    }

    public function do_pipeline(): void
    {
        $this->client->pipeline();
        $this->client->set('a', 'b');
        $this->client->get('a');
    }

    public function do_options(): void
    {
        $this->client->setOption(Redis::OPT_PREFIX, 'visitor:');
        $this->client->setOption(Redis::OPT_SERIALIZER, Redis::SERIALIZER_PHP);
        $this->client->set('a', ['b']);
    }

    public function do_killed(): void
    {
        try {
            $this->client->rawCommand('CLIENT', 'KILL', 'ID', (string) $this->id(), 'SKIPME', 'no');
            $this->client->ping();
        } catch (Throwable) {
        }
    }
}

/** Over streams of PHP's own: the library is the application's. */
final class PredisClient extends Session
{
    public function open(): void
    {
        require_once '/usr/share/php/Predis/autoload.php';
        $this->client = new Predis\Client(
            ['scheme' => 'unix', 'path' => $this->server, 'password' => $this->password(), 'database' => 2],
        );
        $this->client->connect();
    }

    public function id(): int
    {
        return (int) $this->client->executeRaw(['CLIENT', 'ID']);
    }

    public function look(): array
    {
        $line = (string) $this->client->executeRaw(['CLIENT', 'LIST', 'ID', (string) $this->id()]);
        preg_match_all('/(name|flags|db|sub|psub|multi|user|resp|watch)=(\S*)/', $line, $pairs);
        return array_combine($pairs[1], $pairs[2]) + ['ping' => (string) $this->client->ping('x')];
    }

    public function do_select(): void
    {
        $this->client->select(5);
    }

    public function do_name(): void
    {
        $this->client->executeRaw(['CLIENT', 'SETNAME', 'visitor']);
    }

    public function do_multi(): void
    {
        $this->client->multi();
        $this->client->set('a', 'b');
    }

    public function do_watch(): void
    {
        $this->client->watch('a');
    }

    public function do_transaction_exit(): void
    {
        $this->do_multi();
        exit;
    }

    public function do_pipeline(): void
    {
        $this->client->pipeline(static function ($pipeline): void {
            $pipeline->set('a', 'b');
            $pipeline->get('a');
        });
    }

    public function do_subscribe(): void
    {
        $loop = $this->client->pubSubLoop();
        $loop->subscribe('visitors');
        $loop->current();
        $this->held[] = $loop;
    }

    public function do_error(): void
    {
        $this->client->executeRaw(['NO', 'SUCH', 'COMMAND']);
    }

    public function do_killed(): void
    {
        try {
            $this->client->executeRaw(['CLIENT', 'KILL', 'ID', (string) $this->id(), 'SKIPME', 'no']);
            $this->client->ping();
        } catch (Throwable) {
        }
    }
}
