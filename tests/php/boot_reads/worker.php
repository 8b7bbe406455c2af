<?php
// Reads at the boot. A comment behind a line names the verdict and the kind that `hearth check --boot` must report for it; nothing may be reported for
// the other lines.

declare(strict_types=1);

final class Moment extends DateTimeImmutable
{
}

$page = $_GET['page'] ?? 'first'; // mistake request
$fields = $_POST; // mistake request
$has = isset($_COOKIE['id']); // mistake request
$files = count($_FILES); // mistake request
$host = $_SERVER['HTTP_HOST'] ?? ''; // mistake request
$shell = !isset($_SERVER['REQUEST_METHOD']); // mistake request
$key = 'REMOTE_ADDR';
$address = $_SERVER[$key] ?? ''; // mistake request
$body = file_get_contents('php://input'); // mistake request
$field = filter_input(INPUT_GET, 'page'); // mistake request
$header = getenv('HTTP_HOST'); // mistake request
$all = array_keys($_SERVER); // look request

$now = time(); // mistake clock
$exact = microtime(true); // mistake clock
$date = date('Y-m-d'); // mistake clock
$epoch = date('Y-m-d', 0);
$day = strtotime('tomorrow'); // mistake clock
$next = strtotime('+1 day', 0);
$object = new DateTime(); // mistake clock
$inherited = new Moment('yesterday'); // mistake clock
$fixed = new Moment('2020-01-01');
$began = $_SERVER['REQUEST_TIME'] ?? 0; // mistake clock
$ticks = hrtime(true); // look clock
define('LARAVEL_START', microtime(true)); // fine clock

for ($i = 0; $i < 3; $i++) {
    $number = mt_rand(1, 6); // mistake randomness
}
$bytes = random_bytes(8); // mistake randomness
$id = uniqid(); // mistake randomness
$list = [1, 2, 3];
shuffle($list); // mistake randomness
$device = fopen('/dev/urandom', 'rb'); // mistake randomness
fclose($device);

$name = getenv('APP_NAME'); // fine environment
$environment = $_ENV['APP_ENV'] ?? 'prod'; // fine environment
$debug = $_SERVER['APP_DEBUG'] ?? ''; // fine environment
$_SERVER['APP_WRITTEN'] = '1';

try {
    new PDO('mysql:host=127.0.0.1;port=1;password=secret', 'visitor', 'secret'); // mistake database
} catch (PDOException) {
}
try {
    new PDO('sqlite::memory:'); // fine database
} catch (PDOException) {
}

@fsockopen('127.0.0.1', 1); // look network
@stream_socket_client('tcp://127.0.0.1:1'); // look network
@file_get_contents('http://visitor:secret@127.0.0.1:1/page?key=secret'); // look network
gethostbyname('localhost'); // look network

$text = file_get_contents(__DIR__ . '/data.txt'); // fine file
$included = include __DIR__ . '/data.txt'; // fine file
$code = include __DIR__ . '/code.php';
$memory = fopen('php://memory', 'w+');
file_put_contents(__DIR__ . '/written.txt', 'x'); // fine file

while (
    hearth_handle_request(static function (): void {
        echo $_GET['inside'] ?? '', time(), random_int(1, 6), getenv('INSIDE'), file_get_contents(__DIR__ . '/data.txt');
        echo (new Moment())->format('c'), $_SERVER['REQUEST_METHOD'] ?? '';
    })
) {
}
