<?php

/*
 * Hearth's script for console functions: each event is a command line for the program that HEARTH_FUNCTION names (artisan, bin/console), run in a process of
 * its own by PHP's command line program (HEARTH_CLI).
 *
 * Promises
 * - The event is `{"cli": "migrate --force"}`, a list of arguments in its place, or a plain string. There is no shell: quotes group words, nothing is
 *   expanded, and no `;` or `|` begins another command.
 * - The answer is `{"exitCode": 0, "output": "…"}`; another exit code than 0 is an error whose message is the output. What is printed is logged as it comes.
 * - The command is ended, and that said, before the invocation's time is over.
 */

declare(strict_types=1);

namespace Hearth\Worker;

final class Console
{
    private const ERROR = 'Lambda-Runtime-Function-Error-Type';

    /** A response may have 6 MiB. */
    private const MAX_ANSWER = 6 * 1024 * 1024;
    private const MAX_OUTPUT = 5 * 1024 * 1024;

    /** The end of the output that an error tells. */
    private const MAX_MESSAGE = 32_768;

    /** At least so long before the invocation's end the answer is there, in seconds. */
    private const MARGIN = 0.5;

    /** To end the command, and to answer, in seconds: more than PATIENCE. */
    private const ENDING = 0.5;

    /** Between SIGTERM and SIGKILL, in seconds. */
    private const PATIENCE = 0.3;

    private string $output = '';
    private int $dropped = 0;
    private string $line = '';

    /** @param float $margin how long before the invocation's end this process is killed, in seconds */
    public function __construct(private readonly string $program, private readonly string $cli, private readonly float $margin)
    {
    }

    public function serve(): void
    {
        $json = (string) file_get_contents('php://input');
        $words = self::words(json_decode($json, true));
        if ($words === null) {
            $this->fail('Function.InvalidEvent', 'The event is no command: send {"cli": "migrate --force"}, {"cli": ["migrate", "--force"]} or a string.');
            return;
        }
        $context = json_decode((string) ($_SERVER['LAMBDA_INVOCATION_CONTEXT'] ?? ''), true);
        $deadline = (int) ($context['deadlineMs'] ?? 0);
        $left = $deadline > 0 ? $deadline / 1000 - microtime(true) : INF;
        // Of a short time a part, as the server has it; before that, since a command would live on behind this process.
        $ours = max($left - max(self::MARGIN, $this->margin), $left / 2);
        $status = $this->run($words, microtime(true) + max($ours - self::ENDING, $ours / 2));
        if ($status !== 0) {
            $this->cut(max(0, strlen($this->output) - self::MAX_MESSAGE));
            $why = is_int($status) ? "The command has ended with exit status {$status}." : $status;
            $this->fail(is_int($status) ? 'Function.CommandFailed' : 'Function.TimedOut', trim("{$why}\n{$this->output()}"));
            return;
        }
        // Of control characters JSON makes six bytes each.
        while (strlen($json = self::json(['exitCode' => 0, 'output' => $this->output()])) > self::MAX_ANSWER) {
            $this->cut(intdiv(strlen($this->output), 2));
        }
        $this->answer($json);
    }

    /**
     * The words of an event; null: it is no command.
     *
     * @return ?list<string>
     */
    private static function words(mixed $event): ?array
    {
        $command = is_array($event) ? $event['cli'] ?? null : $event;
        if (is_string($command)) {
            return self::split($command);
        }
        if (!is_array($command) || !array_is_list($command) || array_filter($command, is_string(...)) !== $command) {
            return null;
        }
        return str_contains(implode('', $command), "\0") ? null : $command;
    }

    /**
     * As a shell would: blanks part words, quotes and backslashes keep them together. Null: a quote is never closed.
     *
     * @return ?list<string>
     */
    private static function split(string $command): ?array
    {
        $piece = '(?:[^\s"\'\\\\\0]|\\\\[^\0]|\'[^\'\0]*\'|"(?:[^"\\\\\0]|\\\\[^\0])*")';
        if (preg_match("/\A\s*(?:{$piece}+\s*)*+\z/s", $command) !== 1) {
            return null;
        }
        preg_match_all("/{$piece}+/s", $command, $found);
        return array_map(static fn (string $word): string => (string) preg_replace_callback(
            '/\'([^\']*)\'|"((?:[^"\\\\]|\\\\.)*)"|\\\\(.)/s',
            static fn (array $part): string => match (true) {
                ($part[3] ?? '') !== '' => $part[3],
                // Between double quotes a backslash stands for itself but before these.
                ($part[2] ?? '') !== '' => (string) preg_replace('/\\\\(["\\\\$`])/', '$1', $part[2]),
                default => $part[1],
            },
            $word,
        ), $found[0]);
    }

    /**
     * @param list<string> $words
     * @return int|string the exit status, or why there is none
     */
    private function run(array $words, float $until): int|string
    {
        // Without the variables of the request that asks for it.
        $environment = array_filter(getenv(), static fn (string $name): bool => getenv($name, true) !== false, ARRAY_FILTER_USE_KEY);
        $environment['LAMBDA_INVOCATION_CONTEXT'] = (string) ($_SERVER['LAMBDA_INVOCATION_CONTEXT'] ?? '');
        $pipes = [];
        $command = [$this->cli, $this->program, ...$words];
        $process = proc_open($command, [['file', '/dev/null', 'r'], ['pipe', 'w'], ['redirect', 1]], $pipes, getcwd() ?: null, $environment);
        if ($process === false) {
            return "{$this->cli} cannot be run.";
        }
        stream_set_blocking($pipes[1], false);
        $inTime = true;
        $isRunning = true;
        while ($isRunning || $this->read($pipes[1])) {
            $left = $until - microtime(true);
            if ($inTime && $left <= 0) {
                $inTime = false;
                $this->end($process);
            }
            $read = [$pipes[1]];
            $none = null;
            // A closed output says that it has ended, unless a process that it has left behind holds it.
            @stream_select($read, $none, $none, 0, (int) (max(0.0, min(0.05, is_finite($left) ? $left : 0.05)) * 1e6) + 1000);
            $this->read($pipes[1]);
            $status = proc_get_status($process);
            if (!$status['running'] && $isRunning) {
                $isRunning = false;
                $code = $status['signaled'] ? 128 + $status['termsig'] : $status['exitcode'];
            }
        }
        fclose($pipes[1]);
        proc_close($process);
        $this->flush();
        return $inTime ? $code : 'The command took too long and was ended.';
    }

    /** @param resource $process */
    private function end($process): void
    {
        proc_terminate($process);
        $until = microtime(true) + self::PATIENCE;
        while (microtime(true) < $until) {
            if (!proc_get_status($process)['running']) {
                return;
            }
            usleep(10_000);
        }
        proc_terminate($process, 9);
    }

    /** @param resource $pipe */
    private function read($pipe): bool
    {
        $text = fread($pipe, 65_536);
        if ($text === false || $text === '') {
            return false;
        }
        $this->output .= $text;
        $over = strlen($this->output) - self::MAX_OUTPUT;
        // Not at each piece: the rest is moved.
        if ($over > self::MAX_OUTPUT) {
            $this->cut($over);
        }
        $lines = explode("\n", $this->line . $text);
        $this->line = (string) array_pop($lines);
        foreach ($lines as $line) {
            $this->log($line);
        }
        return true;
    }

    private function flush(): void
    {
        $this->cut(max(0, strlen($this->output) - self::MAX_OUTPUT));
        $this->log($this->line);
        $this->line = '';
    }

    private function cut(int $bytes): void
    {
        $this->output = substr($this->output, $bytes);
        $this->dropped += $bytes;
    }

    private function log(string $line): void
    {
        if ($line === '') {
            return;
        }
        if (function_exists('hearth_log')) {
            hearth_log($line, 'info');
        } else {
            error_log($line);
        }
    }

    /** What is left of it, and how much is not. */
    private function output(): string
    {
        return ($this->dropped > 0 ? "[{$this->dropped} bytes before this were left out]\n" : '') . $this->output;
    }

    private function fail(string $type, string $message): void
    {
        http_response_code(500);
        header(self::ERROR . ": {$type}");
        $name = (string) substr((string) strrchr($type, '.'), 1);
        $this->answer(self::json(['errorMessage' => $message, 'errorType' => $name, 'stackTrace' => []]));
    }

    private function answer(string $json): void
    {
        header('Content-Type: application/json');
        echo $json;
    }

    /** @param array<string, mixed> $answer */
    private static function json(array $answer): string
    {
        return (string) json_encode($answer, JSON_UNESCAPED_SLASHES | JSON_UNESCAPED_UNICODE | JSON_INVALID_UTF8_SUBSTITUTE);
    }
}

ignore_user_abort(true);
// The command has limits of its own.
set_time_limit(0);
ini_set('memory_limit', '-1');
chdir((string) getenv('HEARTH_APP_DIR'));
$serve = static function (): void {
    (new Console((string) getenv('HEARTH_FUNCTION'), (string) getenv('HEARTH_CLI'), (float) getenv('HEARTH_DEADLINE_MARGIN')))->serve();
};
if (!in_array(getenv('HEARTH_MODEL'), ['worker', 'prespawn', 'fork', 'snapshot'], true)) {
    $serve();
    return;
}
while (hearth_handle_request($serve)) {
    gc_collect_cycles();
}
