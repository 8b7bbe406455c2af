<?php
// Clients that write the bytes of MySQL's and PostgreSQL's protocols themselves, so that they can stop in the middle of a
// packet.

declare(strict_types=1);

/** What both have: bytes that go, and bytes that come. */
abstract class Spoken extends Session
{
    /** Says something and waits for the end of the answer. @return list<string> the values of its last row */
    abstract protected function ask(string $sql): array;
    /** The message that asks for it. */
    abstract protected function question(string $sql): string;

    protected function send(string $bytes): void
    {
        fwrite($this->client, $bytes);
    }

    protected function take(int $length): string
    {
        $bytes = '';
        while (strlen($bytes) < $length) {
            $piece = fread($this->client, $length - strlen($bytes));
            if ($piece === false || $piece === '') {
                throw new RuntimeException('the server has closed the connection');
            }
            $bytes .= $piece;
        }
        return $bytes;
    }

    protected function connect(string $address): void
    {
        $this->client = stream_socket_client("unix://$address");
        // Unread data stay in the socket.
        stream_set_read_buffer($this->client, 0);
        stream_set_timeout($this->client, 5);
    }

    public function isOpen(): bool
    {
        return is_resource($this->client);
    }

    public function close(): void
    {
        fclose($this->client);
    }

    public function do_half_header(): void
    {
        $this->send(substr($this->question('select 1'), 0, 2));
    }

    public function do_half_message(): void
    {
        $this->send(substr($this->question("select 'the rest of this would be taken out of the reset'"), 0, -10));
    }

    public function do_one_and_a_half(): void
    {
        $question = $this->question('select 1');
        $this->ask('select 1');
        $this->send($question . substr($question, 0, -1));
    }

    public function do_half_read(): void
    {
        $this->send($this->question('select 1'));
        $this->take(3);
    }

    public function do_unread(): void
    {
        $this->send($this->question('select 1'));
        usleep(50000);
    }

    public function do_unknown_message(): void
    {
        $this->send($this->unknown());
        usleep(50000);
    }

    abstract protected function unknown(): string;

    /** TLS by surprise: a ClientHello where a command belongs. */
    public function do_encrypt(): void
    {
        $this->send("\x16\x03\x01\x00\x2f\x01\x00\x00\x2b\x03\x03" . random_bytes(32) . "\x00\x00\x02\x13\x01\x01\x00\x00\x00");
        usleep(20000);
    }

    public function do_variable(): void
    {
        $this->ask($this->setting());
    }

    abstract protected function setting(): string;
}

/** dev.mysql.com/doc/dev/mysql-server, "Connection Phase", with mysql_native_password; "Command Phase". */
final class MysqlStream extends Spoken
{
    private const CAPABILITIES = 0x0008a209; // LONG_PASSWORD, WITH_DB, PROTOCOL_41, SECURE_CONNECTION, PLUGIN_AUTH, TRANSACTIONS

    public function open(): void
    {
        $this->connect($this->server);
        $greeting = $this->packet();
        $at = strpos($greeting, "\0", 1) + 5;
        $salt = substr($greeting, $at, 8) . substr($greeting, $at + 8 + 1 + 2 + 1 + 2 + 2 + 1 + 10, 12);
        $hash = sha1($this->password(), true);
        $proof = $hash ^ sha1($salt . sha1($hash, true), true);
        $this->send($this->framed(pack('VVC', self::CAPABILITIES, 1 << 24, 45) . str_repeat("\0", 23) . "visitor\0" . chr(20) . $proof
            . "shop\0mysql_native_password\0", 1));
        $answer = $this->packet();
        if ($answer[0] !== "\0") {
            throw new RuntimeException('the login was refused: ' . substr($answer, 1));
        }
        $this->ask("set session sql_mode='STRICT_ALL_TABLES'");
    }

    private function framed(string $payload, int $number = 0): string
    {
        return substr(pack('V', strlen($payload)), 0, 3) . chr($number) . $payload;
    }

    private function packet(): string
    {
        $length = unpack('V', substr($this->take(4), 0, 3) . "\0")[1];
        return $this->take($length);
    }

    protected function question(string $sql): string
    {
        return $this->framed("\x03$sql");
    }

    protected function unknown(): string
    {
        return $this->framed("\x7f");
    }

    protected function setting(): string
    {
        return "set @mine='secret of a visitor', sql_mode=''";
    }

    protected function ask(string $sql): array
    {
        $this->send($this->question($sql));
        $first = $this->packet();
        if ($first[0] === "\xff") {
            throw new RuntimeException(substr($first, 9));
        }
        if ($first[0] === "\0") {
            return [];
        }
        for ($ends = 0, $row = ''; $ends < 2;) {
            $packet = $this->packet();
            if ($packet[0] === "\xfe" && strlen($packet) < 9) {
                $ends++;
            } elseif ($ends === 1) {
                $row = $packet;
            }
        }
        $values = [];
        for ($at = 0; $at < strlen($row); $at += 1 + ord($row[$at])) {
            $values[] = substr($row, $at + 1, ord($row[$at]));
        }
        return $values;
    }

    public function id(): int
    {
        return (int) $this->ask('select connection_id()')[0];
    }

    public function look(): array
    {
        return array_combine(['mine', 'database', 'mode', 'transaction'], $this->ask("select coalesce(@mine, ''), database(), @@sql_mode, @@in_transaction"));
    }
}

/** www.postgresql.org/docs/current/protocol.html, as a user who need not log in. */
final class PgsqlStream extends Spoken
{
    public function open(): void
    {
        $this->connect("{$this->server}/.s.PGSQL.5432");
        $start = pack('N', 196608) . "user\0postgres\0database\0shop\0\0";
        $this->send(pack('N', strlen($start) + 4) . $start);
        $this->answer();
        $this->ask("set my.own = ''");
        $this->ask('set search_path to shop');
    }

    protected function question(string $sql): string
    {
        return 'Q' . pack('N', strlen($sql) + 5) . "$sql\0";
    }

    protected function unknown(): string
    {
        return '~' . pack('N', 4);
    }

    protected function setting(): string
    {
        return "set my.own = 'secret of a visitor'; set search_path to public";
    }

    protected function ask(string $sql): array
    {
        $this->send($this->question($sql));
        return $this->answer();
    }

    private function answer(): array
    {
        $values = [];
        do {
            $type = $this->take(1);
            $message = $this->take(unpack('N', $this->take(4))[1] - 4);
            if ($type === 'D') {
                for ($at = 2, $values = []; $at < strlen($message);) {
                    $length = unpack('N', substr($message, $at, 4))[1];
                    $values[] = substr($message, $at + 4, $length);
                    $at += 4 + $length;
                }
            }
        } while ($type !== 'Z');
        return $values;
    }

    public function id(): int
    {
        return (int) $this->ask('select pg_backend_pid()')[0];
    }

    public function look(): array
    {
        $settings = $this->ask("select current_setting('my.own'), current_setting('search_path'), current_user, pg_current_xact_id_if_assigned() is null");
        return array_combine(['own', 'path', 'user', 'free'], $settings);
    }
}
