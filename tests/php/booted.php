<?php

/* Boots, then answers with the state that a request finds of the boot and of earlier requests. /tmp-like paths come from
 * BOOTED_DIR. */

$folder = getenv('BOOTED_DIR');
$boot = new class {
    public int $calls = 0;
    public array $list = ['of the boot' => ['nested' => [1, 2, 3]]];
};
$boot->list['of the boot']['object'] = $boot;
$objects = [];

final class Goodbye
{
    public function __construct(public string $name)
    {
    }

    public function __destruct()
    {
        global $folder;
        file_put_contents("$folder/goodbye", $this->name, FILE_APPEND);
    }
}

$goodbye = new Goodbye('boot ');
$file = fopen(__FILE__, 'r');
$connection = null;
if (getenv('BOOTED_CONNECTS')) {
    $listener = stream_socket_server("unix://$folder/socket");
    $connection = stream_socket_client("unix://$folder/socket");
}
// Compiled expressions of the boot, of which one stays in use. Other memory is between them.
$patterns = $between = [];
for ($i = 0; $i < 60; $i++) {
    $patterns[$i] = "/^a{{$i}}(b+)c$/";
    preg_match($patterns[$i], 'a');
    $between[] = new DateTimeZone('UTC');
}
$kept = new RegexIterator(new ArrayIterator(['ab', 'aab', 'b']), '/^a+b$/');
if (getenv('BOOTED_FAILS')) {
    throw new RuntimeException('the boot fails');
}
hearth_on_worker_start(static function () use ($boot): void {
    $boot->calls += 100;
});

$handle = static function () use ($boot, &$objects, $file, &$connection, $patterns, $kept): void {
    static $calls = 0;
    $calls++;
    $boot->calls++;
    switch (strtok($_SERVER['REQUEST_URI'], '?')) {
        case '/state':
            echo "static $calls, boot $boot->calls, warm ", $_SERVER['HEARTH_WARM_UP'] ?? 'no';
            break;
        case '/leave':
            $objects[] = new Goodbye($_GET['name'] . ' ');
            echo 'left';
            break;
        case '/file':
            echo fread($file, 5);
            break;
        case '/connection':
            echo $connection === null ? 'none' : (fwrite($connection, 'x') === false || fread($connection, 1) === '' ? 'closed' : 'open');
            break;
        case '/throw':
            throw new RuntimeException('not caught');
        case '/fatal':
            echo 'before';
            no_such_function();
        case '/exit':
            echo 'before';
            exit;
        case '/forked':
            // A child that exits in a request ends with the status that it gives.
            $child = function_exists('pcntl_fork') ? pcntl_fork() : null;
            if ($child === 0) {
                exit(7);
            }
            $status = 7 << 8;
            if ($child !== null) {
                pcntl_waitpid($child, $status);
            }
            echo 'child ', $status >> 8;
            break;
        case '/slots':
            // Memory of all sizes, more of each than earlier requests needed; its contents must stay unchanged.
            $of = [];
            for ($i = 0; $i < (int) $_GET['n']; $i++) {
                $of[$i] = str_repeat(chr(65 + $i % 26), 1 + $i * 7 % 3000);
                if ($i % 3 === 0) {
                    unset($of[intdiv($i, 2)]);
                }
                if ($i % 100 === 99) {
                    gc_mem_caches();
                }
            }
            $wrong = 0;
            foreach ($of as $i => $text) {
                $wrong += $text !== str_repeat(chr(65 + $i % 26), 1 + $i * 7 % 3000);
            }
            echo "$wrong wrong";
            break;
        case '/directory':
            chdir('/');
            echo 'changed';
            break;
        case '/patterns':
            // With so many others that the cache throws out some of the boot's.
            $wrong = 0;
            foreach ([0, 5000] as $others) {
                for ($i = 0; $i < $others; $i++) {
                    $wrong += preg_match("/^$i(\\d)/", "{$i}7") !== 1;
                }
                foreach ($patterns as $i => $pattern) {
                    $wrong += preg_match($pattern, str_repeat('a', $i) . 'bbc', $found) !== 1 || $found[1] !== 'bb';
                }
                $wrong += implode(' ', iterator_to_array($kept)) !== 'ab aab';
            }
            echo "$wrong wrong";
            break;
        case '/descriptors':
            // The engine's follow those of the boot: a free number between them would cost each restore a system call.
            foreach (array_diff(scandir('/proc/self/fd'), ['.', '..']) as $number) {
                if (str_ends_with((string) @readlink("/proc/self/fd/$number"), '/maps')) {
                    echo @readlink('/proc/self/fd/' . $number - 1) === false ? 'apart' : 'side by side';
                }
            }
            break;
        case '/cycles':
            // Those of the request are collected, also through values of the boot, which are no possible roots themselves.
            $cycle = new stdClass();
            $cycle->self = $boot->list['cycle'] = $cycle;
            unset($boot->list['cycle'], $cycle);
            $copy = $boot->list;
            $copy['self'] = &$copy;
            unset($copy);
            $collected = gc_collect_cycles();
            $roots = gc_status()['roots'];
            for ($i = 0; $i < 100; $i++) {
                [$object, $array, $nested] = [$boot, $boot->list, $boot->list['of the boot']];
            }
            unset($object, $array, $nested);
            echo "$collected collected, ", gc_status()['roots'] - $roots, ' more roots';
            break;
        case '/spin':
            set_time_limit(1);
            while (true) {
            }
        case '/finish':
            echo 'whole';
            hearth_finish_request();
            echo 'dropped';
            break;
    }
};

if (getenv('BOOTED_LIMITED')) {
    set_time_limit(1);
}
while (hearth_handle_request($handle)) {
    // The loop's own code behind a handler: still of this request.
    file_put_contents("$folder/behind", 'behind ', FILE_APPEND);
}
