<?php
// A `hearth serve` of one script in one model, for run.php: its log is read as it comes, its answers are JSON.

final class Server
{
    /** @var resource */
    private $process;
    /** @var resource */
    private $output;
    private string $log = '';
    private ?string $base = null;

    public function __construct(string $hearth, private string $script, string $model, string $ini)
    {
        $command = [$hearth, 'serve', $script, '--model', $model, '--workers', '1', '--listen', '127.0.0.1:0'];
        $environment = ['PHP_INI_SCAN_DIR' => $ini] + getenv();
        $this->process = proc_open($command, [0 => ['file', '/dev/null', 'r'], 1 => ['pipe', 'w'], 2 => ['redirect', 1]], $pipes, dirname($script), $environment);
        $this->output = $pipes[1];
        stream_set_blocking($this->output, false);
    }

    /** Waits for the event that names the address; false when the server ended, or has not said it in time. */
    public function is_ready(): bool
    {
        for ($end = microtime(true) + LIMIT; $this->base === null && microtime(true) < $end;) {
            $read = [$this->output];
            $none = null;
            stream_select($read, $none, $none, 1);
            $this->read();
            foreach ($this->lines('ready') as $line) {
                $this->base = $line['addresses'][0] ?? $this->base;
            }
            if (feof($this->output)) {
                break;
            }
        }
        return $this->base !== null;
    }

    /** @return array<string, mixed> */
    public function get(string $do): array
    {
        $context = stream_context_create(['http' => ['ignore_errors' => true, 'timeout' => LIMIT]]);
        $body = @file_get_contents("$this->base/?do=$do", false, $context);
        $this->read();
        return json_decode((string) $body, true) ?? ['error' => trim(strip_tags(substr((string) $body, 0, 300)))];
    }

    private function read(): void
    {
        while (($part = fread($this->output, 65536)) !== false && $part !== '') {
            $this->log .= $part;
        }
    }

    /**
     * Lines of the log whose message has this text, or of a level.
     * @return list<array<string, mixed>>
     */
    private function lines(string $message, string ...$levels): array
    {
        $this->read();
        $lines = array_filter(array_map(static fn ($line) => json_decode($line, true), explode("\n", $this->log)), is_array(...));
        return array_values(array_filter($lines, static fn ($line) => $message === '' ? in_array($line['level'] ?? '', $levels, true) : str_contains($line['message'] ?? '', $message)));
    }

    /** Why nothing is served. */
    public function reason(): string
    {
        $plain = array_filter(explode("\n", trim($this->log)), static fn ($line) => $line !== '' && $line[0] !== '{');
        $lines = $this->lines('', 'ERROR');
        return self::short($lines !== [] ? self::text(end($lines)) : (end($plain) ?: $this->log));
    }

    /** The model that runs instead, and why; null if the named one runs. */
    public function instead(): ?string
    {
        $lines = $this->lines('another takes its place');
        return $lines === [] ? null : self::short("`{$lines[0]['instead']}` runs: {$lines[0]['why']}");
    }

    /** Why workers were replaced after their request. */
    public function retirement(): ?string
    {
        $lines = $this->lines('worker retired');
        return $lines === [] ? null : self::short((string) ($lines[0]['reason'] ?? ''));
    }

    public function last_words(): string
    {
        $lines = array_values(array_filter($this->lines('', 'ERROR', 'WARN'), static fn ($line) => ($line['message'] ?? '') !== 'PHP runs as root'));
        return $lines === [] ? '' : ' (' . self::short(self::text(end($lines))) . ')';
    }

    /** @param array<string, mixed> $line */
    private static function text(array $line): string
    {
        $rest = array_intersect_key($line, array_flip(['why', 'reason', 'error', 'output', 'exit', 'signal']));
        return implode(': ', array_map(strval(...), array_filter([$line['message'] ?? '', ...array_values($rest)], is_scalar(...))));
    }

    private static function short(string $text): string
    {
        return trim(substr(preg_replace('/\s+/', ' ', $text), 0, 300));
    }

    public function stop(): void
    {
        proc_terminate($this->process);
        for ($end = microtime(true) + LIMIT; proc_get_status($this->process)['running']; usleep(5000)) {
            microtime(true) < $end || proc_terminate($this->process, 9);
        }
        fclose($this->output);
        proc_close($this->process);
    }
}
