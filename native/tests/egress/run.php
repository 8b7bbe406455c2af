<?php

/**
 * Runs cases.php, clients.php and codings.php (ext-curl) and streams.php twice: with stock PHP, and with hearth.so and a broker. Compares what PHP code observes.
 * Then tests what stock PHP does not have: connections that outlive handles and processes, a missing broker, forks.
 *
 *     php native/tests/egress/run.php [WORD]      only the cases with WORD in their names
 *
 * HEARTH_BIN: the program `hearth`; `scripted-origin` is beside it. HEARTH_WORKER_DIR: where hearth-8.x.so is. The last line counts.
 */

declare(strict_types=1);

final class Egress
{
    /** Cases whose calls go over the frame listener, all or some; those of the first two are there for http and for https. */
    private const FAST_OF_BOTH = [
        'asked to be compressed', 'compressed with gzip', 'compressed twice', 'compressed twice, said twice', 'compressed, and the callback refuses',
        'compressed, not said',
        'URL set after a call', 'a 502 of the origin\'s', 'a field without a colon', 'a handle after another', 'a handle twice',
        'a large answer', 'a post is redirected', 'a post stays one', 'after a redirect the handle is as before',
        'an empty answer', 'fields without value', 'body callback', 'body callback that refuses', 'callback that calls',
        'callback that sets options', 'callback that throws', 'compressed, as it is', 'copy', 'cut off', 'delete',
        'fields of the caller\'s', 'get', 'head', 'head into a file', 'head, by its name too', 'header callback',
        'header callback that refuses', 'into a file', 'lines of an interim answer', 'no path', 'no listener',
        'one that is taken out', 'post', 'post a hundred kilobytes', 'post nothing', 'private', 'put a string',
        'redirect with referer', 'redirects are followed', 'redirects are not followed', 'reset',
        'reset in the place of an answer', 'the head in the answer', 'time limit', 'too many redirects',
        'what a callback can ask',
    ];
    private const FAST_OF_GUZZLE = [
        '404', 'a stream', 'compressed', 'cookies', 'get', 'json', 'multipart', 'redirects', 'refused',
        'refused while it streams', 'reset', 'sink', 'statistics', 'time limit', 'too many redirects',
    ];
    private const FAST = [
        'guzzle, https: HTTP/2',
        'a certificate of another host', 'a certificate that has expired', 'a certificate that signs itself', 'a chunk without a size',
        'a handshake that is none', 'a handshake that stalls',
        'HTTP/1.1 only', 'a wish to the broker from outside', 'a wrong pin', 'another name in the certificate',
        'early refusal', 'empty answer', 'fields as old servers write them', 'from one scheme to the other', 'no such file of authorities',
        'no such name', 'not verified', 'rubbish', 'unknown authority', 'service, http: Stripe',
        'service, https: Stripe', 'codings: a field with an empty value', 'codings: gzip in the field', 'codings: gzip in the field, more in the option',
    ];
    private string $folder;
    /** @var resource[] */
    private array $processes = [];
    private string $socket;
    private array $bases;
    private int $passed = 0;
    private int $failed = 0;

    public function __construct(private string $hearth, private string $extension)
    {
        $this->folder = sys_get_temp_dir() . '/hearth-egress-' . getmypid();
        mkdir($this->folder, 0700);
        $this->socket = "{$this->folder}/egress.sock";
    }

    public function __destruct()
    {
        foreach ($this->processes as $process) {
            proc_terminate($process);
            proc_close($process);
        }
        array_map('unlink', glob("{$this->folder}/*"));
        rmdir($this->folder);
    }

    private function start(array $command, string $name): void
    {
        $log = "{$this->folder}/$name.log";
        $this->processes[$name] = proc_open($command, [['file', '/dev/null', 'r'], ['file', $log, 'w'], ['file', $log, 'a']], $pipes);
    }

    private function until(callable $condition, string $what): void
    {
        for ($tries = 0; $tries < 600; $tries++) {
            clearstatcache();
            if ($condition()) {
                return;
            }
            usleep(50000);
        }
        throw new RuntimeException("waited in vain for $what");
    }

    public function start_all(): void
    {
        $this->start([dirname($this->hearth) . '/scripted-origin', '--folder', $this->folder], 'origin');
        $urls = fn () => file("{$this->folder}/origin.log", FILE_IGNORE_NEW_LINES) ?: [];
        $this->until(fn () => count($urls()) === 2, 'the origin');
        $this->bases = $urls();
        $this->start_broker();
    }

    private function start_broker(): void
    {
        $this->start([$this->hearth, 'egress', '--socket', $this->socket, '--log-format', 'text'], 'broker');
        $this->until(fn () => str_contains((string) file_get_contents("{$this->folder}/broker.log"), 'ready on'), 'the broker');
    }

    private function stop_broker(): void
    {
        proc_terminate($this->processes['broker']);
        proc_close($this->processes['broker']);
        unset($this->processes['broker']);
    }

    /** Environment for an extension built with sanitizers (scripts/test-sanitized). */
    private static function sanitizers(): array
    {
        return array_intersect_key(getenv(), array_flip(['LD_PRELOAD', 'ASAN_OPTIONS', 'UBSAN_OPTIONS', 'USE_ZEND_ALLOC']));
    }

    /** What a script prints; with a socket, under the extension. */
    private function php(array $arguments, ?string $socket, array $environment = [], array $settings = [], array $within = []): string
    {
        $command = [...$within, PHP_BINARY, '-d', 'display_errors=stderr', '-d', "error_log={$this->folder}/php.log", '-d', 'memory_limit=256M'];
        if ($socket !== null) {
            array_push($command, '-d', "extension={$this->extension}", ...$settings);
            $environment['HEARTH_EGRESS'] = $socket;
        }
        $probe = stream_socket_server('tcp://127.0.0.1:0');
        preg_match('/\d+$/', stream_socket_get_name($probe, false), $closed);
        fclose($probe);
        $process = proc_open([...$command, ...$arguments], [1 => ['pipe', 'w']], $pipes, null, $environment + [
            'EGRESS_HTTP' => $this->bases[0],
            'EGRESS_HTTPS' => $this->bases[1],
            'EGRESS_FOLDER' => $this->folder,
            'EGRESS_CLOSED_PORT' => (string) $this->closed_port ??= $closed[0],
            'PATH' => getenv('PATH'),
        ] + self::sanitizers());
        $out = stream_get_contents($pipes[1]);
        $status = proc_close($process);
        return $status === 0 ? $out : "exit status $status: $out";
    }

    private ?string $closed_port = null;

    private function check(string $name, mixed $expected, mixed $got): void
    {
        if ($expected === $got) {
            $this->passed++;
            return;
        }
        $this->failed++;
        echo "FAILED $name\n";
        $files = ["{$this->folder}/expected", "{$this->folder}/got"];
        file_put_contents($files[0], print_r($expected, true) . "\n");
        file_put_contents($files[1], print_r($got, true) . "\n");
        passthru('diff -U2 ' . implode(' ', array_map('escapeshellarg', $files)) . ' | tail -n +3');
    }

    /** @param string[] $settings of the run with Hearth */
    public function table(string $cases, string $only, array $settings = []): void
    {
        $observe = [__DIR__ . '/observe.php'];
        $environment = ['EGRESS_CASES' => $cases, 'EGRESS_ONLY' => $only];
        $stock = json_decode($out = $this->php($observe, null, $environment), true) ?? exit("stock: $out\n0 passed, 1 failed\n");
        // Only calls of curl can go two ways.
        $ways = $cases === 'curl' ? [' by libcurl' => '0', ' by frames' => '1'] : ['' => '1'];
        foreach ($ways as $way => $frames) {
            $hearth = json_decode($out = $this->php($observe, $this->socket, $environment, [...$settings, '-d', "hearth.egress_frames=$frames"]), true);
            if ($hearth === null) {
                $this->check("the table of $cases$way", 'JSON', $out);
                continue;
            }
            foreach ($stock['seen'] as $name => $seen) {
                $this->check("$cases$way: $name", $seen, $hearth['seen'][$name] ?? 'not run');
                $fast = $cases === 'curl' && $frames === '1' && self::is_fast($name);
                $this->check("$cases$way: the way of $name", $fast, $hearth['fast'][$name] > 0);
            }
        }
    }

    private static function guzzle(): array
    {
        return array_map(fn (string $name) => "guzzle: $name", self::FAST_OF_GUZZLE);
    }

    /** Whether calls of a case go over the frame listener; all others need libcurl. */
    private static function is_fast(string $name): bool
    {
        return in_array(preg_replace('/^https?: /', '', $name), self::FAST_OF_BOTH, true)
            || in_array(preg_replace('/^guzzle, https?: /', 'guzzle: ', $name), self::guzzle(), true)
            || in_array($name, self::FAST, true);
    }

    public function beyond(): void
    {
        $connection = ['-r', '
            foreach ([1, 2] as $i) {
                $curl = curl_init(getenv("EGRESS_HTTPS") . "/headers");
                curl_setopt_array($curl, [CURLOPT_RETURNTRANSFER => true, CURLOPT_CAINFO => getenv("EGRESS_FOLDER") . "/authority.pem"]);
                $facts = json_decode(curl_exec($curl) ?: exit(curl_error($curl)), true);
                $ids[] = $facts["connection"];
                curl_close($curl);
                unset($curl);
            }
            echo json_encode($ids);'];
        $first = json_decode($this->php($connection, $this->socket), true);
        $second = json_decode($this->php($connection, $this->socket), true);
        $this->check('connections outlive handles', true, isset($first[0]) && $first[0] === $first[1]);
        $this->check('connections outlive processes', $first, $second);
        $this->check('stock PHP makes a new one', true, count(array_unique(json_decode($this->php($connection, null), true))) === 2);

        $get = ['-r', '
            $curl = curl_init(getenv("EGRESS_HTTP") . "/bytes/3");
            curl_setopt($curl, CURLOPT_RETURNTRANSFER, true);
            echo strlen(curl_exec($curl)), curl_error($curl), curl_getinfo($curl, CURLINFO_LOCAL_IP);
            echo ini_get("hearth.egress"), "|", ini_get("hearth.intercept_curl");'];
        $this->check('off', '3127.0.0.1|1', $this->php($get, $this->socket, [], ['-d', 'hearth.egress=off']));
        $this->check('not curl', '3127.0.0.1auto|0', $this->php($get, $this->socket, [], ['-d', 'hearth.intercept_curl=0']));
        $this->check('on', '3auto|1', $this->php($get, $this->socket));
        $this->check('by path', "3{$this->socket}|1", $this->php($get, '', [], ['-d', "hearth.egress={$this->socket}"]));

        @unlink("{$this->folder}/php.log");
        $twice = ['-r', substr($get[1], 0, strpos($get[1], 'echo ini_get')) . ' curl_exec($curl);'];
        $this->check('no broker: directly', '3127.0.0.1', $this->php($twice, "{$this->folder}/missing.sock"));
        // `missing.sock` has a token beside it, so it is the socket that is missed
        $log = (string) @file_get_contents("{$this->folder}/php.log");
        $this->check('no broker: one notice', 1, substr_count($log, 'no egress broker at'));

        $signed = ['-r', '
            $get = function (array $fields) {
                $curl = curl_init(getenv("EGRESS_HTTP") . "/headers");
                curl_setopt_array($curl, [CURLOPT_RETURNTRANSFER => true, CURLOPT_HTTPHEADER => $fields]);
                return [json_decode(curl_exec($curl), true)["connection"] ?? curl_error($curl), curl_getinfo($curl, CURLINFO_LOCAL_IP)];
            };
            $before = $get([]);
            $signed = [$get(["Authorization: Negotiate YII="]), $get(["authorization:ntlm TlRM"])];
            echo json_encode([$before === $get([]), array_column($signed, 1)]);'];
        $this->check('a connection that was signed in is not shared', '[true,["127.0.0.1","127.0.0.1"]]', $this->php($signed, $this->socket));

        $errno = ['-r', '$curl = curl_init(getenv("EGRESS_HTTP") . "/bytes/3"); curl_exec($curl); echo curl_errno($curl);'];
        $proxy = ['http_proxy' => '', 'all_proxy' => 'http://127.0.0.1:1'];
        $this->check('an empty variable hides no proxy', ['7', '7'], [$this->php($errno, null, $proxy), $this->php($errno, $this->socket, $proxy)]);

        if (function_exists('pcntl_fork')) {
            $fork = ['-r', '
                $get = function () {
                    $curl = curl_init(getenv("EGRESS_HTTP") . "/headers");
                    curl_setopt($curl, CURLOPT_RETURNTRANSFER, true);
                    return json_decode(curl_exec($curl), true)["target"] ?? curl_error($curl);
                };
                $before = $get();
                $child = pcntl_fork();
                if ($child === 0) {
                    exit($get() === $before ? 7 : 1);
                }
                $mine = $get();
                pcntl_waitpid($child, $status);
                echo $before, $mine, pcntl_wexitstatus($status);'];
            $this->check('fork', '/headers/headers7', $this->php($fork, $this->socket));
        }

        $restart = ['-r', '
            $curl = curl_init(getenv("EGRESS_HTTP") . "/bytes/3");
            curl_setopt($curl, CURLOPT_RETURNTRANSFER, true);
            for ($i = 0; $i < 3; $i++) {
                echo curl_exec($curl) === false ? curl_error($curl) : "ok", curl_getinfo($curl, CURLINFO_LOCAL_IP), " ";
                if ($i < 2) {
                    file_put_contents(getenv("EGRESS_FOLDER") . "/step", (string) ($i + 1));
                    while (file_exists(getenv("EGRESS_FOLDER") . "/step")) { usleep(20000); clearstatcache(); }
                }
            }'];
        $this->check('the broker goes and comes back', 'ok ok127.0.0.1 ok ', $this->with_steps($restart, [
            fn () => $this->stop_broker(),
            fn () => $this->start_broker(),
        ]));
    }

    /** Listens, and answers by hand: the origin or the broker of a test about what is sent how often. */
    private function listen(string $address): mixed
    {
        @unlink(preg_replace('#^unix://#', '', $address));
        return stream_socket_server($address);
    }

    /** Returns the next bytes of a connection; `` at its end. */
    private function next_of(mixed $connection): string
    {
        stream_set_timeout($connection, 30);
        return (string) fread($connection, 65536);
    }

    /** Returns whether no client connects for a while. */
    private function stays_alone(mixed $listener): bool
    {
        return @stream_socket_accept($listener, 0.5) === false;
    }

    /** Starts a script under the extension; its output is read later. */
    private function begin(string $code, string $socket): array
    {
        $command = [PHP_BINARY, '-d', "error_log={$this->folder}/php.log", '-d', "extension={$this->extension}", '-r', $code];
        $process = proc_open($command, [1 => ['pipe', 'w']], $pipes, null, [
            'HEARTH_EGRESS' => $socket,
            'EGRESS_HTTP' => $this->bases[0],
            'EGRESS_FOLDER' => $this->folder,
        ] + self::sanitizers());
        return [$process, $pipes[1]];
    }

    private function end(array $begun): string
    {
        $out = stream_get_contents($begun[1]);
        proc_close($begun[0]);
        return $out;
    }

    /** Calls a listener's address once and returns the error. */
    private static function one_call(mixed $listener, string $options): string
    {
        return '$curl = curl_init("http://' . stream_socket_get_name($listener, false) . '/");
            curl_setopt_array($curl, [CURLOPT_RETURNTRANSFER => true, ' . $options . ']);
            $body = curl_exec($curl);
            echo curl_errno($curl), "|", curl_error($curl), "|", (string) $body;';
    }

    private const POST = 'CURLOPT_POSTFIELDS => "paid once"';
    private const ANSWER = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok";

    /** The kept connection when something happens to one of its ends. */
    public function faults(): void
    {
        $origin = $this->listen('tcp://127.0.0.1:0');

        $php = $this->begin(self::one_call($origin, self::POST), $this->socket);
        $connection = stream_socket_accept($origin, 30);
        $request = $this->next_of($connection);
        $this->kill_broker();
        $this->check('broker killed in a POST: the error', '52|Empty reply from server|', $this->end($php));
        $this->check('broker killed in a POST: it was out', 1, substr_count($request, "\r\n\r\npaid once"));
        $this->check('broker killed in a POST: sent once', true, $this->stays_alone($origin));
        $this->start_broker();

        $php = $this->begin(self::one_call($origin, 'CURLOPT_TIMEOUT => 30'), $this->socket);
        $connection = stream_socket_accept($origin, 30);
        $this->next_of($connection);
        $this->kill_broker();
        $again = stream_socket_accept($origin, 30);
        $this->next_of($again);
        fwrite($again, self::ANSWER);
        $this->check('broker killed in a GET: made again, directly', '0||ok', $this->end($php));
        $this->start_broker();

        $php = $this->begin(self::one_call($origin, self::POST), $this->socket);
        $connection = stream_socket_accept($origin, 30);
        $this->next_of($connection);
        proc_terminate($php[0], 9);
        $this->check('PHP killed in a call: the broker lets go', '', $this->next_of($connection));
        $this->end($php);

        // Programs that are not brokers. The outcome depends on how much they have read.
        $path = "{$this->folder}/false.sock";
        $broker = $this->listen("unix://$path");
        foreach ([
            'closes without reading, POST' => [self::POST, false, '', '0||ok'],
            'closes without reading, GET' => ['', false, '', '0||ok'],
            'reads and closes, POST' => [self::POST, true, '', '52|Empty reply from server|'],
            'reads and closes, GET' => ['', true, '', '0||ok'],
            'answers garbage, POST' => [self::POST, true, str_repeat("\xff", 100), '52|Empty reply from server|'],
            'answers half a frame, POST' => [self::POST, true, "\x10\0\0\0\x53\0\0\0", '52|Empty reply from server|'],
            'answers half a head, POST' => [self::POST, true, "\x04\0\0\0\x53\0\0\0abcd", '52|Empty reply from server|'],
            'asks for a body that it has, POST' => [self::POST, true, "\0\0\0\0\x51\0\0\0", '52|Empty reply from server|'],
        ] as $what => [$options, $reads, $answer, $expected]) {
            $php = $this->begin(self::one_call($origin, $options), $path);
            // One that was not read is offered once more.
            for ($i = 0; $i < ($reads ? 1 : 2); $i++) {
                $connection = stream_socket_accept($broker, 30);
                $waiting = [$connection];
                $none = null;
                stream_select($waiting, $none, $none, 30);
                if ($reads) {
                    $this->next_of($connection);
                    fwrite($connection, $answer);
                }
                fclose($connection);
            }
            if ($expected === '0||ok') {
                $direct = stream_socket_accept($origin, 30);
                $this->next_of($direct);
                fwrite($direct, self::ANSWER);
                fclose($direct);
            }
            $this->check("a broker that $what", $expected, $this->end($php));
            $this->check("a broker that $what: nothing twice", true, $this->stays_alone($origin));
        }

        $many = '$sockets = fn () => count(array_filter(
                array_map("readlink", glob("/proc/self/fd/*")),
                fn ($to) => str_starts_with((string) $to, "socket:")
            ));
            $before = $sockets();
            for ($i = 0; $i < 1000; $i++) {
                $curl = curl_init(getenv("EGRESS_HTTP") . "/echo");
                curl_setopt_array($curl, [CURLOPT_RETURNTRANSFER => true, CURLOPT_POSTFIELDS => "n$i"]);
                $bad = ($bad ?? 0) + (curl_exec($curl) !== "n$i");
            }
            ob_start();
            (new ReflectionExtension("hearth"))->info();
            preg_match("/without libcurl => (\d+)/", ob_get_clean(), $found);
            unset($curl);
            echo $bad, " ", $found[1], " ", $sockets() - $before;';
        $this->check('a thousand calls on one connection', '0 1000 1', $this->end($this->begin($many, $this->socket)));

        $leave = '$call = function (string $path, array $options = []) {
                $curl = curl_init(getenv("EGRESS_HTTP") . $path);
                curl_setopt_array($curl, $options + [CURLOPT_RETURNTRANSFER => true]);
                return curl_exec($curl);
            };
            register_shutdown_function(fn () => print(strlen((string) $call("/bytes/5"))));
            echo strlen($call("/bytes/3"));
            $call("/bytes/3000000", [CURLOPT_WRITEFUNCTION => function () { LEAVE }]);';
        foreach (['exit(0);', '@trigger_error("out", E_USER_ERROR);', '$GLOBALS["x"] = str_repeat("x", 1 << 40);'] as $way) {
            $out = $this->end($this->begin('ini_set("display_errors", "0");' . str_replace('LEAVE', $way, $leave), $this->socket));
            $this->check("a callback that leaves by $way", '35', $out);
        }
    }

    /** Limits of curl_multi are of connections to origins, on each way. */
    public function limits(): void
    {
        $seen = fn (?string $socket) => json_decode($out = $this->php([__DIR__ . '/limits.php'], $socket), true) ?? ['nothing' => $out];
        $stock = $seen(null);
        // What libcurl does there depends on its version: 8.14 opens two connections, 8.23 more.
        $own = fn (string $what): bool => str_ends_with($what, 'own connections');
        foreach (['with' => $this->socket, 'without' => "{$this->folder}/missing.sock"] as $name => $socket) {
            foreach ($seen($socket) as $what => $value) {
                $wanted = $name === 'with' && $own($what) ? true : $stock[$what] ?? 'not seen';
                $this->check("limits, $name a broker: $what", $wanted, $value);
            }
        }
        $this->check('limits: stock', [], array_keys(array_filter($stock, fn ($value, $what) => $value === false && !$own($what), ARRAY_FILTER_USE_BOTH)));
    }

    /** SIGPIPE's disposition is left alone while calls to the broker are under way, and looked at after they have ended. Only where strace is installed, and not within a sanitizer. */
    public function signals(): void
    {
        if (isset(self::sanitizers()['LD_PRELOAD']) || !is_executable('/usr/bin/strace')) {
            return;
        }
        $calls = ['-r', '
            $multi = curl_multi_init();
            for ($n = 0; $n < 30; $n++) {
                curl_multi_add_handle($multi, $handles[] = $curl = curl_init(getenv("EGRESS_HTTP") . "/delay/" . 10 * $n));
                curl_setopt($curl, CURLOPT_RETURNTRANSFER, true);
            }
            do { curl_multi_exec($multi, $running); curl_multi_select($multi); } while ($running > 0);
            echo array_sum(array_map(fn ($curl) => curl_getinfo($curl, CURLINFO_RESPONSE_CODE) === 200, $handles));'];
        $seen = [];
        foreach (['stock' => null, 'broker' => $this->socket] as $way => $socket) {
            $trace = "{$this->folder}/signals.$way";
            $within = ['strace', '-f', '-qq', '-e', 'trace=rt_sigaction', '-o', $trace];
            $this->check("signals, $way: the calls", '30', $this->php($calls, $socket, [], [], $within));
            $seen[$way] = substr_count((string) @file_get_contents($trace), 'rt_sigaction(SIGPIPE');
        }
        $this->check('signals: with a broker less than a tenth of stock', true, $seen['stock'] > 0 && $seen['broker'] * 10 < $seen['stock']);
    }

    private function kill_broker(): void
    {
        proc_terminate($this->processes['broker'], 9);
        proc_close($this->processes['broker']);
        unset($this->processes['broker']);
    }

    /** Tests of streams without a counterpart in stock PHP. The origin can tell the callers apart: only stock PHP asks it to close the connection. */
    public function beyond_streams(): void
    {
        $on = ['-d', 'hearth.intercept_streams=1'];
        $get = ['-r', '
            $get = fn () => json_decode(file_get_contents(getenv("EGRESS_HTTPS") . "/headers", false, stream_context_create([
                "ssl" => ["cafile" => getenv("EGRESS_FOLDER") . "/authority.pem"],
            ])), true);
            foreach ([$get(), $get()] as $facts) {
                $ids[] = $facts["connection"];
                $way = in_array(["Connection", "close"], $facts["fields"], true) ? "directly" : "broker";
            }
            echo json_encode([$way, count(array_unique($ids)), $ids[0]]);'];
        $run = fn (?string $socket, array $settings) => json_decode($this->php($get, $socket, [], $settings), true) ?? ['nothing', 0, 0];
        [$way, $connections, $first] = $run($this->socket, $on);
        $this->check('streams: on', ['broker', 1], [$way, $connections]);
        $this->check('streams: connections outlive processes', $first, $run($this->socket, $on)[2]);
        $this->check('streams: stock PHP makes new ones', ['directly', 2], array_slice($run(null, []), 0, 2));
        $this->check('streams: off by default', ['directly', 2], array_slice($run($this->socket, []), 0, 2));
        $this->check('streams: hearth.egress=off', ['directly', 2], array_slice($run($this->socket, [...$on, '-d', 'hearth.egress=off']), 0, 2));
        $this->check('streams: without curl', ['broker', 1], array_slice($run($this->socket, [...$on, '-d', 'hearth.intercept_curl=0']), 0, 2));

        @unlink("{$this->folder}/php.log");
        $this->check('streams, no broker: directly', ['directly', 2], array_slice($run("{$this->folder}/missing.sock", $on), 0, 2));
        $log = (string) @file_get_contents("{$this->folder}/php.log");
        $this->check('streams, no broker: one notice', 1, substr_count($log, 'no egress broker at'));

        $forbidden = ['-d', 'allow_url_fopen=0', '-r', 'var_dump(@file_get_contents(getenv("EGRESS_HTTP") . "/bytes/3")); echo error_get_last()["message"];'];
        $this->check('streams: allow_url_fopen', $this->php($forbidden, null), $this->php($forbidden, $this->socket, [], $on));

        if (function_exists('pcntl_fork')) {
            $fork = ['-r', '
                $get = fn () => json_decode(file_get_contents(getenv("EGRESS_HTTP") . "/headers"), true)["target"] ?? "nothing";
                $file = fopen(getenv("EGRESS_HTTP") . "/drip", "r");
                $child = pcntl_fork();
                if ($child === 0) {
                    exit($get() === "/headers" ? 7 : 1);
                }
                pcntl_waitpid($child, $status);
                echo $get(), stream_get_contents($file), pcntl_wexitstatus($status);'];
            $this->check('streams: fork', '/headersxxxxxxxxxx7', $this->php($fork, $this->socket, [], $on));
        }

        $restart = ['-r', '
            for ($i = 0; $i < 3; $i++) {
                $facts = json_decode((string) file_get_contents(getenv("EGRESS_HTTP") . "/headers"), true);
                echo in_array(["Connection", "close"], $facts["fields"], true) ? "directly " : "broker ";
                if ($i < 2) {
                    file_put_contents(getenv("EGRESS_FOLDER") . "/step", (string) ($i + 1));
                    while (file_exists(getenv("EGRESS_FOLDER") . "/step")) { usleep(20000); clearstatcache(); }
                }
            }'];
        $this->check('streams: the broker goes and comes back', 'broker directly broker ', $this->with_steps($restart, [
            fn () => $this->stop_broker(),
            fn () => $this->start_broker(),
        ], $on));
    }

    /** A script that waits between its calls while the file `step` exists. */
    private function with_steps(array $arguments, array $steps, array $settings = []): string
    {
        $script = "{$this->folder}/steps.php";
        file_put_contents($script, '<?php ' . $arguments[1]);
        $process = proc_open(
            [PHP_BINARY, '-d', "error_log={$this->folder}/php.log", '-d', "extension={$this->extension}", ...$settings, $script],
            [1 => ['pipe', 'w']],
            $pipes,
            null,
            ['HEARTH_EGRESS' => $this->socket, 'EGRESS_HTTP' => $this->bases[0], 'EGRESS_FOLDER' => $this->folder] + self::sanitizers()
        );
        foreach ($steps as $step) {
            $this->until(fn () => file_exists("{$this->folder}/step"), 'the script');
            $step();
            unlink("{$this->folder}/step");
        }
        $out = stream_get_contents($pipes[1]);
        proc_close($process);
        return $out;
    }

    /** Starts php-fpm with the extension. It clears its children's environment, except for the variables in the pool's file. */
    public function fpm(string $program, bool $by_pool): void
    {
        $script = "{$this->folder}/fpm.php";
        file_put_contents($script, '<?php
            $curl = curl_init("' . $this->bases[0] . '/headers");
            curl_setopt($curl, CURLOPT_RETURNTRANSFER, true);
            echo json_decode(curl_exec($curl), true)["connection"] ?? curl_error($curl);
            echo "/", json_decode(file_get_contents("' . $this->bases[0] . '/headers"), true)["connection"], "/";
            echo function_exists("frankenphp_handle_request") ? "!" : "", var_export(hearth_finish_request(), true);');
        file_put_contents("{$this->folder}/fpm.conf", "[global]\nerror_log = {$this->folder}/fpm.log\ndaemonize = no\n"
            . "[www]\nlisten = {$this->folder}/fpm.sock\npm = static\npm.max_children = 2\npm.max_requests = 1\n"
            . "user = root\ngroup = root\n" . ($by_pool ? "env[HEARTH_EGRESS] = {$this->socket}\n" : ''));
        putenv('HEARTH_EGRESS' . ($by_pool ? '' : "={$this->socket}"));
        $command = [$program, '-y', "{$this->folder}/fpm.conf", '-d', "extension={$this->extension}", '-d', 'hearth.intercept_streams=1'];
        $this->start(function_exists('posix_geteuid') && posix_geteuid() === 0 ? [...$command, '-R'] : $command, 'php-fpm');
        putenv('HEARTH_EGRESS');
        $this->until(fn () => file_exists("{$this->folder}/fpm.sock"), 'php-fpm');
        $answers = [];
        for ($i = 0; $i < 4; $i++) {
            $answers[] = $this->fast_cgi($script);
        }
        proc_terminate($this->processes['php-fpm']);
        proc_close($this->processes['php-fpm']);
        unset($this->processes['php-fpm']);
        $this->check('connections outlive processes of php-fpm', 1, count(array_unique($answers)));
        $this->check('php-fpm', 1, preg_match('#^\d+/\d+/false$#', $answers[0]));
    }

    /** Returns the body of a script's answer (FastCGI 1.0). */
    private function fast_cgi(string $script): string
    {
        $record = fn (int $type, string $content) => pack('CCnnCC', 1, $type, 1, strlen($content), 0, 0) . $content;
        $pair = fn (string $name, string $value) => pack('CN', strlen($name), strlen($value) | 0x80000000) . $name . $value;
        $socket = stream_socket_client("unix://{$this->folder}/fpm.sock");
        fwrite($socket, $record(1, pack('nCx5', 1, 0))
            . $record(4, $pair('SCRIPT_FILENAME', $script) . $pair('REQUEST_METHOD', 'GET'))
            . $record(4, '') . $record(5, ''));
        $out = '';
        while (strlen($head = (string) fread($socket, 8)) === 8) {
            $head = unpack('Cversion/Ctype/nid/nlength/Cpadding', $head);
            $content = '';
            while (strlen($content) < $head['length'] + $head['padding']) {
                $content .= fread($socket, $head['length'] + $head['padding'] - strlen($content));
            }
            $out .= $head['type'] === 6 ? substr($content, 0, $head['length']) : '';
        }
        return explode("\r\n\r\n", $out, 2)[1] ?? $out;
    }

    public function report(): int
    {
        echo "{$this->passed} passed, {$this->failed} failed\n";
        return $this->failed === 0 ? 0 : 1;
    }
}

$hearth = getenv('HEARTH_BIN') ?: __DIR__ . '/../../../target/debug/hearth';
$folder = getenv('HEARTH_WORKER_DIR') ?: dirname($hearth);
$egress = new Egress($hearth, sprintf('%s/hearth-%d.%d.so', $folder, PHP_MAJOR_VERSION, PHP_MINOR_VERSION));
$egress->start_all();
$egress->table('curl', $argv[1] ?? '');
$egress->table('streams', $argv[1] ?? '', ['-d', 'hearth.intercept_streams=1']);
if (($argv[1] ?? '') === 'limits') {
    $egress->limits();
}
if (($argv[1] ?? '') === 'signals') {
    $egress->signals();
}
if (!isset($argv[1])) {
    $egress->beyond();
    $egress->limits();
    $egress->signals();
    $egress->faults();
    $egress->beyond_streams();
    $fpm = sprintf('/usr/sbin/php-fpm%d.%d', PHP_MAJOR_VERSION, PHP_MINOR_VERSION);
    if (is_executable($fpm)) {
        $egress->fpm($fpm, false);
        $egress->fpm($fpm, true);
    }
}
exit($egress->report());
