<?php

/** The program `hearth`: where it is, and how an artisan command becomes it or runs it. In place of the command's process it
 * gets a supervisor's signals itself, and its exit status is the command's. */

declare(strict_types=1);

namespace Hearth\Laravel;

use RuntimeException;
use Symfony\Component\Process\ExecutableFinder;

final class Program
{
    private function __construct(private readonly string $path)
    {
    }

    /**
     * @param ?string $named the path or name that the user gave; else HEARTH_BIN, the application's vendor/bin/hearth, then the PATH
     * @throws RuntimeException if there is none: its message says what to do
     */
    public static function find(?string $named, string $folder): self
    {
        $named = (string) ($named ?? getenv('HEARTH_BIN'));
        if (str_contains($named, '/')) {
            return is_executable($named) && is_file($named) ? new self($named)
                : throw new RuntimeException("{$named} is no program: name hearth with HEARTH_BIN or --hearth=/path/to/hearth");
        }
        $path = $named === '' && is_executable("{$folder}/vendor/bin/hearth") ? "{$folder}/vendor/bin/hearth"
            : (new ExecutableFinder())->find($named === '' ? 'hearth' : $named);
        return $path !== null ? new self($path) : throw new RuntimeException(
            'hearth is neither on the PATH nor in vendor/bin: install it, or name it with HEARTH_BIN or --hearth=/path/to/hearth',
        );
    }

    /**
     * The environment that this process was started with. What Laravel has read from `.env` since is not in it: PHP reads it
     * in the server, again at each reload.
     *
     * @return array<string, string>
     */
    public static function environment(): array
    {
        $text = @file_get_contents('/proc/self/environ');
        if ($text === false || $text === '') {
            return getenv();
        }
        $environment = [];
        foreach (explode("\0", $text) as $line) {
            $at = (int) strpos($line, '=');
            if ($at > 0) {
                $environment[substr($line, 0, $at)] = substr($line, $at + 1);
            }
        }
        return $environment;
    }

    /**
     * Becomes the program. Where PHP has no pcntl it waits for the program, and signals to this process do not reach it.
     *
     * @param list<string> $arguments
     * @param array<string, string> $environment
     * @throws RuntimeException if it cannot be run
     */
    public function become(array $arguments, array $environment): int
    {
        if (!function_exists('pcntl_exec')) {
            fwrite(STDERR, "without the extension pcntl, signals to this process do not reach {$this->path}\n");
            return $this->run($arguments, $environment);
        }
        pcntl_exec($this->path, $arguments, $environment);
        throw new RuntimeException("{$this->path} cannot be run: " . pcntl_strerror(pcntl_get_last_error()));
    }

    /**
     * Runs the program, and returns its exit status.
     *
     * @param list<string> $arguments
     * @param array<string, string> $environment
     * @param bool $isQuiet its output is thrown away
     * @throws RuntimeException if it cannot be run
     */
    public function run(array $arguments, array $environment, bool $isQuiet = false): int
    {
        $nothing = ['file', '/dev/null', 'r+'];
        $process = proc_open(
            [$this->path, ...$arguments],
            $isQuiet ? [$nothing, $nothing, $nothing] : [STDIN, STDOUT, STDERR],
            $pipes,
            null,
            $environment,
        );
        return $process !== false ? proc_close($process) : throw new RuntimeException("{$this->path} cannot be run");
    }

    /** An address for `--listen`: Hearth takes numbers, and brackets around those with colons. */
    public static function address(string $host, string $port): string
    {
        $host = $host === 'localhost' ? '127.0.0.1' : trim($host, '[]');
        return (str_contains($host, ':') ? "[{$host}]" : $host) . ":{$port}";
    }
}
