<?php
// Serves app.php with one extension at a time in each model, and writes what came of it. Started by scripts/test-extensions:
//
//     php -n run.php HEARTH PHP LIST RESULTS [EXTENSION...]
//
// LIST has lines `extension<tab>package<tab>version<tab>/path/of.so`. RESULTS gets lines
// `extension<tab>name<tab>package<tab>version<tab>model<tab>word<tab>remark`, where the name is PHP's own.
// The words: yes, shared, retires (a fork for each request), boot retires (so if the boot uses
// it), `late …` (not at boot), refused, blind (sees no requests), leaks, fpm (leaks as under
// php-fpm), fails, loads not. PHP has OPcache and the extension with those it needs, nothing else.
// Promises: ends every server that it started; waits for its log lines and answers, each with a limit of 30 s.

const MODELS = ['request', 'snapshot', 'fork', 'worker'];
const REQUESTS = 20;
const LIMIT = 30;
// Extensions that must be loaded first.
const NEEDS = [
    'exif' => ['mbstring'],
    'http' => ['iconv', 'raphf'],
    'memcached' => ['igbinary', 'msgpack'],
    'mysqli' => ['mysqlnd'],
    'pdo_dblib' => ['pdo'],
    'pdo_firebird' => ['pdo'],
    'pdo_mysql' => ['mysqlnd', 'pdo'],
    'pdo_odbc' => ['pdo'],
    'pdo_pgsql' => ['pdo'],
    'pdo_sqlite' => ['pdo'],
    'pq' => ['raphf'],
    'ps' => ['gd'],
    'redis' => ['igbinary'],
    'solr' => ['curl'],
    'swoole' => ['sockets', 'curl'],
    'xmlreader' => ['dom'],
    'xmlrpc' => ['xml'],
    'xsl' => ['dom'],
    'mailparse' => ['mbstring'],
];
const OF_THE_ENGINE = ['opcache', 'xdebug'];

[, $hearth, $php, $list, $results] = $argv;
$only = array_slice($argv, 5);
require __DIR__ . '/server.php';
require __DIR__ . '/app.php';

/** @var array<string, array{package: string, version: string, file: string}> $extensions */
$extensions = [];
foreach (file($list, FILE_IGNORE_NEW_LINES) as $line) {
    [$name, $package, $version, $file] = explode("\t", $line);
    $extensions[$name] = compact('package', 'version', 'file');
}

/** The ini lines that load an extension, with those that it needs. */
function ini_of(string $extension): string
{
    global $extensions;
    $names = array_merge(NEEDS[$extension] ?? [], [$extension]);
    // Part of PHP from 8.5 on, or in the list.
    isset($extensions['opcache']) && $extension !== 'opcache' && array_unshift($names, 'opcache');
    $lines = [];
    foreach ($names as $name) {
        $kind = in_array($name, OF_THE_ENGINE, true) ? 'zend_extension' : 'extension';
        // One that is not in the list is part of this PHP.
        isset($extensions[$name]) && $lines[] = "$kind={$extensions[$name]['file']}";
    }
    foreach (needs_of($extension) as $setting => $value) {
        $lines[] = "$setting=$value";
    }
    return implode("\n", $lines) . "\n";
}

/** @return array<string, string> settings without which the extension does nothing here */
function needs_of(string $extension): array
{
    return [
        'ffi' => ['ffi.enable' => '1'],
        'pinba' => ['pinba.enabled' => '1', 'pinba.server' => reports()[1]],
        'xdebug' => ['xdebug.mode' => 'develop,coverage'],
    ][$extension] ?? [];
}

/** A socket that gets what an extension reports of each request, and its address. @return array{resource, string} */
function reports(): array
{
    static $socket = null;
    $socket ??= stream_socket_server('udp://127.0.0.1:0', flags: STREAM_SERVER_BIND);
    stream_set_blocking($socket, false);
    return [$socket, stream_socket_get_name($socket, false)];
}

/** How many reports came since the last time. */
function count_reports(): int
{
    for ($count = 0; (string) stream_socket_recvfrom(reports()[0], 65536) !== ''; $count++) {
    }
    return $count;
}

/** What PHP itself calls the extension, or the reason why it does not load. @return array{?string, string} */
function load(string $php, string $folder): array
{
    $code = 'echo json_encode(array_merge(get_loaded_extensions(), get_loaded_extensions(true)));';
    $names = static function (string $scan) use ($php, $code): array {
        $process = proc_open([$php, '-d', 'display_errors=stderr', '-r', $code], [1 => ['pipe', 'w'], 2 => ['pipe', 'w']], $pipes, null, ['PHP_INI_SCAN_DIR' => $scan, 'PATH' => getenv('PATH')]);
        $names = json_decode(stream_get_contents($pipes[1]), true) ?? [];
        $errors = trim(stream_get_contents($pipes[2]));
        proc_close($process);
        return [$names, strtok($errors, "\n") ?: ''];
    };
    [$base] = $names("$folder/base");
    [$all, $errors] = $names("$folder/ini");
    $new = array_values(array_diff($all, $base));
    return [$new[0] ?? null, $errors];
}

/** One extension in one model: a word and a remark. @return array{string, string} */
function try_model(string $hearth, string $folder, string $probe, string $model, bool $touches): array
{
    $script = in_array($model, ['request', 'fpm'], true) ? "$folder/site/public/index.php" : "$folder/site/" . ($touches ? 'worker.php' : 'late.php');
    $server = new Server($hearth, $script, $model, "$folder/ini");
    try {
        if (!$server->is_ready()) {
            return ['refused', $server->reason()];
        }
        $pids = [];
        $first = null;
        count_reports();
        for ($i = 0; $i < REQUESTS; $i++) {
            $answer = $server->get('use');
            if (!isset($answer['pid']) || isset($answer['error'])) {
                return ['fails', ($answer['error'] ?? 'no answer') . $server->last_words()];
            }
            $pids[] = $answer['pid'];
            $first ??= [$answer['value'] ?? null];
            if ([$answer['value'] ?? null] !== $first) {
                return ['fails', 'request ' . ($i + 1) . ' answered ' . json_encode($answer['value']) . ', not ' . json_encode($first[0])];
            }
        }
        if (($instead = $server->instead()) !== null) {
            return ['refused', $instead];
        }
        $reported = count_reports();
        $before = $server->get('look');
        $server->get('change');
        $after = $server->get('look');
        $server->get('change');
        $again = $server->get('look');
        $words = [];
        // Libraries with threads close their descriptors later.
        $last = $server->get('look');
        $again['value']['descriptors'] = $after['value']['descriptors'] = $last['value']['descriptors'] ?? null;
        foreach ([$before, $after, $again] as $look) {
            if (!isset($look['value']['ini'])) {
                return ['fails', 'after a change: ' . ($look['error'] ?? 'no answer') . $server->last_words()];
            }
            foreach ($look['value'] as $key => $value) {
                // Threads live as long as their process.
                $value === $before['value'][$key] || $key === 'threads' && $model === 'request' || $words[$key] = difference($key, $before['value'][$key], $value);
            }
        }
        if ((probe_of($probe)['reports'] ?? false) && $reported < REQUESTS - 1) {
            return ['blind', "$reported of " . REQUESTS . ' requests were reported'];
        }
        $shared = probe_of($probe)['shared'] ?? null;
        if ($shared !== null) {
            // It exists to be found by the next request.
            if ($after['value']['own'] != true) {
                return ['fails', "$shared is not shared"];
            }
            unset($words['own']);
        }
        $replaced = count(array_unique($pids)) > 1;
        $threads = $before['value']['threads'] > 1 ? '; runs threads' : '';
        if ($model === 'worker') {
            // Shared by definition: values of PHP stay. What else does is the remark.
            $php = ['static' => 1, 'global' => 1, 'constant' => 1, 'resources' => 1, 'descriptors' => 1, 'threads' => 1];
            return [$shared === null ? 'yes' : 'shared', ltrim(implode('; ', array_diff_key($words, $php)) . $threads, '; ')];
        }
        if ($words !== []) {
            return ['leaks', implode('; ', $words) . $threads];
        }
        if ($replaced && $model === 'snapshot') {
            return ['retires', $server->retirement() ?? 'each request has another process'];
        }
        return $shared === null ? ['yes', ltrim($threads, '; ')] : ['shared', $shared];
    } finally {
        $server->stop();
    }
}

function difference(string $key, mixed $before, mixed $after): string
{
    if ($key === 'ini') {
        return 'settings ' . implode(', ', array_keys(array_diff_assoc(array_map(strval(...), $after), array_map(strval(...), $before))));
    }
    if ($key === 'descriptors') {
        return 'descriptors ' . implode(', ', array_unique(array_diff($after, $before) ?: $after));
    }
    return $key . ' ' . substr(json_encode($before) . ' became ' . json_encode($after), 0, 120);
}

$out = fopen($results, 'we');
$versions = trim(shell_exec(escapeshellarg($php) . ' -n -r "echo PHP_VERSION;"'));
fwrite($out, "# PHP\t$versions\n");
foreach ($extensions as $extension => $of) {
    if ($only !== [] && !in_array($extension, $only, true)) {
        continue;
    }
    $folder = sys_get_temp_dir() . "/hearth-extensions-$extension";
    shell_exec('rm -rf ' . escapeshellarg($folder));
    mkdir("$folder/site/public", 0777, true);
    mkdir("$folder/ini");
    mkdir("$folder/base");
    file_put_contents("$folder/ini/extension.ini", ini_of($extension));
    file_put_contents("$folder/base/extension.ini", preg_replace('~^.*' . preg_quote($of['file'], '~') . '\n~m', '', ini_of($extension)));
    [$name, $complaint] = load($php, $folder);
    $row = static function (string $model, array $result) use ($out, $extension, $name, $of): void {
        [$word, $remark] = $result;
        $remark = trim(preg_replace('/\s+/', ' ', $remark));
        fwrite($out, "$extension\t$name\t{$of['package']}\t{$of['version']}\t$model\t$word\t$remark\n");
        echo str_pad("$extension, $model", 34), "$word  $remark\n";
    };
    if ($name === null) {
        foreach (MODELS as $model) {
            $row($model, ['loads not', $complaint]);
        }
        continue;
    }
    $app = var_export(__DIR__ . '/app.php', true);
    $quoted = var_export($name, true);
    $probe = var_export($extension, true);
    $start = "<?php\n\$extension = $quoted;\ndefine('PROBE', $probe);\nrequire $app;\n";
    $loop = "while (hearth_handle_request(static fn () => answer(\$extension))) {\n}\n";
    file_put_contents("$folder/site/public/index.php", "{$start}answer(\$extension);\n");
    file_put_contents("$folder/site/worker.php", "{$start}use_extension(\$extension);\n$loop");
    file_put_contents("$folder/site/late.php", $start . $loop);
    foreach (MODELS as $model) {
        $result = try_model($hearth, $folder, $extension, $model, true);
        if ($model !== 'request' && in_array($result[0], ['refused', 'fails'], true)) {
            $late = try_model($hearth, $folder, $extension, $model, false);
            // Used in requests only, it may run.
            $result = in_array($late[0], ['refused', 'fails'], true) ? $result : ["late $late[0]", $result[1] . ($late[1] === '' ? '' : "; in requests only: $late[1]")];
        }
        if ($result[0] === 'retires' && try_model($hearth, $folder, $extension, $model, false)[0] === 'yes') {
            $result[0] = 'boot retires';
        }
        if ($model === 'request' && $result[0] === 'leaks' && try_model($hearth, $folder, $extension, 'fpm', true)[0] === 'leaks') {
            $result[0] = 'fpm';
        }
        $row($model, $result);
    }
    shell_exec('rm -rf ' . escapeshellarg($folder));
}
