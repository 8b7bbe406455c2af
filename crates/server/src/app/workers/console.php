<?php

/*
 * Hearth's script for console functions: each event is a command line for the program that HEARTH_FUNCTION names (artisan, bin/console). PHP's command
 * line program (HEARTH_CLI) runs it in a separate process.
 *
 * Promises
 * - The event is `{"cli": "migrate --force"}`, a list of arguments instead, or a plain string. There is no shell: quotes group words, nothing is
 *   expanded, and `;` and `|` do not start another command.
 * - The answer is `{"exitCode": 0, "output": "…"}`; an exit code other than 0 is an error with the output as its message. The output is logged while it is printed.
 * - The command is ended, with an error, before the invocation's time limit.
 */

declare(strict_types=1);

namespace Hearth\Worker;

final class Console
{
    private const ERROR = 'Lambda-Runtime-Function-Error-Type';

    /** A response may have 6 MiB. */
    private const MAX_ANSWER = 6 * 1024 * 1024;
    private const MAX_OUTPUT = 5 * 1024 * 1024;

    /** Bytes of the output's end in an error message. */
    private const MAX_MESSAGE = 32_768;

    /** Minimum time between the response and the invocation's end, in seconds. */
    private const MARGIN = 0.5;

    /** Time to end the command and to respond, in seconds: more than PATIENCE. */
    private const ENDING = 0.5;

    /** Time between SIGTERM and SIGKILL, in seconds. */
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
        // A part of a short time limit, as in the server; earlier than the server's, because the command would outlive this process.
        $ours = max($left - max(self::MARGIN, $this->margin), $left / 2);
        $status = $this->run($words, microtime(true) + max($ours - self::ENDING, $ours / 2));
        if ($status !== 0) {
            $this->cut(max(0, strlen($this->output) - self::MAX_MESSAGE));
            $why = is_int($status) ? "The command has ended with exit status {$status}." : $status;
            $this->fail(is_int($status) ? 'Function.CommandFailed' : 'Function.TimedOut', trim("{$why}\n{$this->output()}"));
            return;
        }
        // JSON encodes a control character as six bytes.
        while (strlen($json = self::json(['exitCode' => 0, 'output' => $this->output()])) > self::MAX_ANSWER) {
            $this->cut(intdiv(strlen($this->output), 2));
        }
        $this->answer($json);
    }

    /**
     * Returns the words of an event; null: it is not a command.
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
     * Splits words as a shell does: at blanks, except within quotes and after backslashes. Null: a quote is not closed.
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
                // Between double quotes, a backslash is literal except before these.
                ($part[2] ?? '') !== '' => (string) preg_replace('/\\\\(["\\\\$`])/', '$1', $part[2]),
                default => $part[1],
            },
            $word,
        ), $found[0]);
    }

    /**
     * @param list<string> $words
     * @return int|string the exit status, or the reason why there is none
     */
    private function run(array $words, float $until): int|string
    {
        // Without the variables of the request.
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
            // A closed output means that it has exited, unless a process that it left running holds the output open.
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
        // Not for each piece, because cutting moves the rest.
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

    /** Returns the kept part, with a note on the number of omitted bytes. */
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
// The command has its own limits.
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
