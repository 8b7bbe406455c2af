<?php

/** `php artisan hearth:channels`: runs `hearth channels` for the application, in the place of `reverb:start`. The program takes the place of the PHP
 * process, so a supervisor's signals reach it. */

declare(strict_types=1);

namespace Hearth\Laravel;

use Illuminate\Console\Command;
use RuntimeException;

final class ChannelsCommand extends Command
{
    protected $signature = 'hearth:channels
        {--host= : Address to listen on; else REVERB_SERVER_HOST, else 0.0.0.0}
        {--port= : Port to listen on; else REVERB_SERVER_PORT, else 8080}
        {--hearth= : The program; else HEARTH_BIN, else vendor/bin/hearth, else `hearth` on the PATH}
        {options?* : Options of `hearth channels`, after two dashes}';

    protected $description = 'Run the realtime server for Laravel Echo and Pusher clients';

    public function handle(): int
    {
        $address = Program::address($this->setting('host', '0.0.0.0'), $this->setting('port', '8080'));
        $arguments = ['channels', '--listen', $address, ...array_values((array) $this->argument('options'))];
        try {
            return Program::find($this->option('hearth'), $this->laravel->basePath())->become($arguments, $this->credentials() + getenv());
        } catch (RuntimeException $failed) {
            $this->error($failed->getMessage());
            return 1;
        }
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
