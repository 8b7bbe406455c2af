<?php

/** `php artisan hearth:channels`: runs `hearth channels` for the application, in the place of `reverb:start`. The program takes the place of the PHP
 * process, so a supervisor's signals reach it. */

declare(strict_types=1);

namespace Hearth\Laravel;

use Illuminate\Console\Command;
use Symfony\Component\Process\ExecutableFinder;

final class ChannelsCommand extends Command
{
    protected $signature = 'hearth:channels
        {--host= : Address to listen on; else REVERB_SERVER_HOST, else 0.0.0.0}
        {--port= : Port to listen on; else REVERB_SERVER_PORT, else 8080}
        {--hearth= : The program; else HEARTH_BIN, else `hearth` on the PATH}
        {options?* : Options of `hearth channels`, after two dashes}';

    protected $description = 'Run the realtime server for Laravel Echo and Pusher clients';

    public function handle(): int
    {
        $program = $this->program();
        if ($program === null) {
            $this->error('hearth is not on the PATH: install it, or name it with --hearth=/path/to/hearth');
            return 1;
        }
        $arguments = ['channels', '--listen', "{$this->setting('host', '0.0.0.0')}:{$this->setting('port', '8080')}", ...(array) $this->argument('options')];
        $environment = $this->credentials() + getenv();
        if (function_exists('pcntl_exec')) {
            pcntl_exec($program, $arguments, $environment);
            $this->error("{$program} cannot be run: " . pcntl_strerror(pcntl_get_last_error()));
            return 1;
        }
        $process = proc_open([$program, ...$arguments], [STDIN, STDOUT, STDERR], $pipes, null, $environment);
        if ($process === false) {
            $this->error("{$program} cannot be run");
            return 1;
        }
        return proc_close($process);
    }

    private function program(): ?string
    {
        $named = (string) ($this->option('hearth') ?? (getenv('HEARTH_BIN') ?: 'hearth'));
        return str_contains($named, '/') ? (is_executable($named) ? $named : null) : (new ExecutableFinder())->find($named);
    }

    private function setting(string $name, string $default): string
    {
        return (string) ($this->option($name) ?? $this->laravel['config']["hearth.channels.{$name}"] ?? $default);
    }

    /** @return array<string, string> the application of the connection `hearth`; none if it has no key: hearth.toml may name some */
    private function credentials(): array
    {
        $connection = (array) $this->laravel['config']['broadcasting.connections.hearth'];
        $parts = array_map(static fn (string $name): string => (string) ($connection[$name] ?? ''), ['app_id', 'key', 'secret']);
        return in_array('', $parts, true) ? [] : ['HEARTH_REALTIME_APPS' => implode(':', $parts)];
    }
}
