<?php

declare(strict_types=1);

// The system's state of the process.
Row::$current = 'The process';

putenv('OF_BOOT=boot');
Row::add('putenv()', fn () => putenv('LEFT_BEHIND=environment'), fn () => getenv('LEFT_BEHIND'));
Row::add('putenv() over a variable of the boot', fn () => putenv('OF_BOOT=changed'), fn () => getenv('OF_BOOT'));
Row::add('putenv() that takes a variable away', fn () => putenv('APP_COLOUR'), fn () => getenv('APP_COLOUR'));
Row::add('environment of child processes', fn () => putenv('TO_CHILDREN=yes'), fn () => trim((string) shell_exec('echo $TO_CHILDREN')));
Row::add('current directory', fn () => chdir('/'), fn () => getcwd());
Row::add('umask', fn () => umask(0077), fn () => umask());
Row::add('resource limit', function (): void {
    $limit = posix_getrlimit();
    posix_setrlimit(POSIX_RLIMIT_NOFILE, $limit['soft openfiles'] - 1, $limit['hard openfiles']);
}, fn () => posix_getrlimit()['soft openfiles'], able: function_exists('posix_setrlimit'));
Row::add('priority', fn () => proc_nice(1), fn () => explode(' ', (string) strstr((string) file_get_contents('/proc/self/stat'), ') '))[17]);

// Values that a process writes to its own files.
foreach (['name of the process' => ['comm', 'left'], 'OOM score' => ['oom_score_adj', '7'], 'core dump filter' => ['coredump_filter', '1'], 'timer slack' => ['timerslack_ns', '77777']] as $name => [$file, $value]) {
    $path = "/proc/self/$file";
    Row::add($name, fn () => file_put_contents($path, $value), fn () => trim((string) file_get_contents($path)), able: is_writable($path));
}

Row::add('signal handler', fn () => pcntl_signal(SIGWINCH, static fn () => null), fn () => signal_is('SigCgt', SIGWINCH), able: function_exists('pcntl_signal'));
Row::add('signal ignored', fn () => pcntl_signal(SIGURG, SIG_IGN), fn () => signal_is('SigIgn', SIGURG), able: function_exists('pcntl_signal'));
Row::add('signal blocked', fn () => pcntl_sigprocmask(SIG_BLOCK, [SIGIO]), fn () => signal_is('SigBlk', SIGIO), able: function_exists('pcntl_sigprocmask'));
Row::add('alarm', fn () => pcntl_alarm(1000), function (): bool {
    $left = pcntl_alarm(0);
    $left > 0 && pcntl_alarm($left);
    return $left > 0;
}, able: function_exists('pcntl_alarm'));
function signal_is(string $set, int $signal): bool
{
    preg_match("/^$set:\s*([0-9a-f]+)/m", (string) file_get_contents('/proc/self/status'), $match);
    return ((int) hexdec($match[1]) >> ($signal - 1) & 1) === 1;
}

// Ended and not waited for: a zombie.
Row::add('child process left', function (): void {
    $pipes = [];
    Kept::$things['child'][] = [proc_open('true', [['pipe', 'r'], ['pipe', 'w']], $pipes), $pipes];
    Kept::$things['child'][] = popen('true', 'r');
    for ($i = 0; $i < 1_000 && array_filter(children(), is_running(...)) !== []; $i++) {
        usleep(10_000);
    }
}, fn () => [count(children()), isset(Kept::$things['child'])]);
/** @return list<string> process ids */
function children(): array
{
    $children = trim((string) @file_get_contents('/proc/thread-self/children'));
    return preg_split('/ /', $children, -1, PREG_SPLIT_NO_EMPTY);
}
function is_running(string $pid): bool
{
    $stat = (string) @file_get_contents("/proc/$pid/stat");
    return $stat !== '' && !str_starts_with((string) strstr($stat, ') '), ') Z');
}

// Held by an object that releases it when it is freed.
Row::add('semaphore held', function (): void {
    $semaphore = sem_get(crc32(__DIR__) & 0x7fffffff);
    sem_acquire($semaphore, true);
    Kept::$things['semaphores'][] = $semaphore;
}, function (): bool {
    $semaphore = sem_get(crc32(__DIR__) & 0x7fffffff);
    return eventually(static fn (): bool => sem_acquire($semaphore, true)) && sem_remove($semaphore);
}, able: function_exists('sem_get'));
