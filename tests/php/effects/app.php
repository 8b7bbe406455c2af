<?php

declare(strict_types=1);

// Effects of a request outside its own memory: files, connections, processes, and shutdown work. ?do=… selects one.

/** Writes a line when it is destructed. */
final class Witness
{
    public function __construct(private readonly string $name)
    {
    }

    public function __destruct()
    {
        note("destructor of $this->name");
    }
}

final class Kept
{
    /** @var array<mixed> */
    public static array $things = [];
    /** @var resource|null */
    public static $file;
    /** @var resource|null */
    public static $connection;
}

function note(string $line): void
{
    file_put_contents(__DIR__ . '/notes', "$line\n", FILE_APPEND | LOCK_EX);
}

/** @return mixed the request's answer, as JSON */
function act(string $what): mixed
{
    switch ($what) {
        case 'ends':
            register_shutdown_function(static fn () => note('shutdown function'));
            $local = new Witness('a local');
            Kept::$things[] = new Witness('an object kept');
            isset($_GET['exit']) && exit('exit');
            isset($_GET['fails']) && undefined_function();
            return 'ended';
        case 'fields':
            header_register_callback(static fn () => header('X-Left: left'));
            ob_start(static fn (string $text): string => $text . ' left');
            return 'fields';
        case 'gzip':
            $file = gzopen(__DIR__ . '/left.gz', 'w');
            gzwrite($file, str_repeat('all of it ', 10000));
            Kept::$things[] = $file;
            return 'written';
        case 'temporary':
            Kept::$things[] = $file = tmpfile();
            fwrite($file, 'left');
            return stream_get_meta_data($file)['uri'];
        case 'upload':
            return $_FILES['file']['tmp_name'];
        case 'connect':
            Kept::$things[] = stream_socket_client("tcp://{$_GET['address']}");
            Kept::$things[] = pfsockopen('tcp://' . explode(':', $_GET['address'])[0], (int) explode(':', $_GET['address'])[1]);
            return count(Kept::$things);
        case 'session':
            session_start();
            $_SESSION['visits'] = ($_SESSION['visits'] ?? 0) + 1;
            return ['id' => session_id(), 'visits' => $_SESSION['visits']];
        case 'session-look':
            return [session_id(), session_status(), $_SESSION ?? null, session_module_name(), session_name()];
        case 'session-handler':
            session_name('left');
            session_set_save_handler(new class () implements SessionHandlerInterface {
                public function open(string $path, string $name): bool
                {
                    return true;
                }

                public function close(): bool
                {
                    return true;
                }

                public function read(string $id): string|false
                {
                    return 'secret|s:4:"left";';
                }

                public function write(string $id, string $data): bool
                {
                    note('session handler');
                    return true;
                }

                public function destroy(string $id): bool
                {
                    return true;
                }

                public function gc(int $max_lifetime): int|false
                {
                    return 0;
                }
            }, true);
            session_start();
            return [session_module_name(), $_SESSION['secret']];
        case 'read':
            // without PHP's buffer, in steps that another process would disturb
            $text = '';
            while ((string) ($piece = fread(Kept::$file, 5)) !== '') {
                $text .= $piece;
                usleep(100);
            }
            return $text;
        case 'ask':
            $sent = is_resource(Kept::$connection) ? @fwrite(Kept::$connection, "ping\n") : false;
            return [$sent, $sent ? fgets(Kept::$connection) : null];
        case 'compile':
            require __DIR__ . '/compiled.php';
            return opcache_is_script_cached(__DIR__ . '/compiled.php');
        case 'compiled':
            return opcache_is_script_cached(__DIR__ . '/compiled.php');
        case 'apcu':
            return function_exists('apcu_inc') && apcu_enabled() ? apcu_inc('visits') : null;
        case 'clock':
            return [$_SERVER['REQUEST_TIME'], $_SERVER['REQUEST_TIME_FLOAT'], time()];
        case 'fork':
            $child = pcntl_fork();
            if ($child === 0) {
                isset($_GET['late']) && usleep(300_000);
                note('child');
                exit(0);
            }
            isset($_GET['late']) || pcntl_waitpid($child, $status);
            return 'parent';
        default:
            return 'nothing';
    }
}

/** Descriptors that the boot has opened. */
function boot(): void
{
    Kept::$file = fopen(__DIR__ . '/read.txt', 'r');
    stream_set_read_buffer(Kept::$file, 0);
    $connect = static function (): void {
        Kept::$connection = stream_socket_client('tcp://' . getenv('PEER'));
        stream_set_timeout(Kept::$connection, 5);
    };
    match (getenv('CONNECT')) {
        'boot' => $connect(),
        'start' => hearth_on_worker_start($connect),
        default => null,
    };
    $GLOBALS['of_boot'] = new Witness('the boot');
}

return static function (): void {
    $answer = act($_GET['do'] ?? '');
    header('Content-Type: application/json');
    echo json_encode(['pid' => getmypid(), 'answer' => $answer], JSON_THROW_ON_ERROR);
};
