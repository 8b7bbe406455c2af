<?php

declare(strict_types=1);

// Files, streams, connections.
Row::$current = 'Files and connections';

$file = fopen(place('boot.txt'), 'r');
Row::add('position in a file opened at boot', fn () => fread($file, 7), function () use ($file): int {
    $at = ftell($file);
    $left = strlen((string) stream_get_contents($file));
    fseek($file, $at);
    return $left;
});
Row::add('file opened at boot and closed', function (): void {
    $file = Files::$closed;
    is_resource($file) && fclose($file);
}, fn () => is_resource(Files::$closed) && fgets(Files::$closed) !== false && rewind(Files::$closed));
final class Files
{
    /** @var resource */
    public static $closed;
}
Files::$closed = fopen(place('boot.txt'), 'r');

$folder = opendir(place('folder'));
Row::add('position in a folder opened at boot', function () use ($folder): void {
    while (readdir($folder) !== false) {
    }
}, function () use ($folder): int {
    for ($left = 0; readdir($folder) !== false; $left++) {
    }
    $left === 0 || rewinddir($folder);
    return $left;
});

$memory = fopen('php://memory', 'w+');
fwrite($memory, 'boot');
Row::add('php://memory of the boot', fn () => fwrite($memory, 'left behind'), fn () => fstat($memory)['size']);

Row::add('files left open', function (): void {
    Kept::$things['files'][] = fopen(place('boot.txt'), 'r');
    Kept::$things['files'][] = tmpfile();
    Kept::$things['files'][] = new SplFileObject(place('boot.txt'));
    Kept::$things['files'][] = opendir('/');
}, fn () => descriptors());
Row::add('sockets left open', function (): void {
    Kept::$things['sockets'][] = stream_socket_pair(STREAM_PF_UNIX, STREAM_SOCK_STREAM, 0);
    Kept::$things['sockets'][] = stream_socket_server('tcp://127.0.0.1:0');
}, fn () => descriptors());
function descriptors(): int
{
    return count((array) scandir('/proc/self/fd'));
}
Row::add('file locked', function (): void {
    $file = fopen(place('locked'), 'c');
    flock($file, LOCK_EX | LOCK_NB);
    Kept::$things['lock'] = $file;
}, fn () => lockable(place('locked')));
$shared = fopen(place('folder/one'), 'r');
Row::add('file opened at boot and locked', fn () => flock($shared, LOCK_EX | LOCK_NB), fn () => lockable(place('folder/one')));
/** Returns whether a lock is available, through a new descriptor. */
function lockable(string $path): bool
{
    $file = fopen($path, 'c');
    return eventually(static fn (): bool => flock($file, LOCK_EX | LOCK_NB));
}

Row::add('stream wrapper', fn () => in_array('left', stream_get_wrappers(), true) || stream_wrapper_register('left', stdClass::class), fn () => in_array('left', stream_get_wrappers(), true));
Row::add('stream wrapper taken away', fn () => in_array('ftp', stream_get_wrappers(), true) && stream_wrapper_unregister('ftp'), fn () => in_array('ftp', stream_get_wrappers(), true));
Row::add('default stream context', fn () => stream_context_set_default(['http' => ['user_agent' => 'left']]), fn () => stream_context_get_options(stream_context_get_default()));
Row::add('stream filter', fn () => @stream_filter_register('left.*', php_user_filter::class), fn () => in_array('left.*', stream_get_filters(), true));

$pdo = null;
if (class_exists(PDO::class) && in_array('sqlite', PDO::getAvailableDrivers(), true)) {
    $pdo = new PDO('sqlite:' . place('boot.sqlite'));
    $pdo->exec('CREATE TABLE IF NOT EXISTS visits (n)');
}
Row::add('setting of a database connection of the boot', function () use ($pdo): void {
    $pdo->setAttribute(PDO::ATTR_DEFAULT_FETCH_MODE, PDO::FETCH_NUM);
}, fn () => $pdo->getAttribute(PDO::ATTR_DEFAULT_FETCH_MODE), able: $pdo !== null);
Row::add('transaction left open on a database connection of the boot', function () use ($pdo): void {
    $pdo->inTransaction() || $pdo->beginTransaction();
    $pdo->exec('INSERT INTO visits VALUES (1)');
}, function () use ($pdo): array {
    // first: the query would close what has no other reference
    $locks = locks();
    return [$locks, $pdo->inTransaction(), (int) $pdo->query('SELECT count(*) FROM visits')->fetchColumn()];
}, able: $pdo !== null);
/** Locks of fcntl(2), which belong to the process and not to a descriptor: this process's on the database. */
function locks(): int
{
    $file = fileinode(place('boot.sqlite'));
    return preg_match_all('/ POSIX .* ' . getmypid() . " [0-9a-f]+:[0-9a-f]+:$file /", (string) file_get_contents('/proc/locks'));
}
