<?php

/** `php artisan hearth:serve`: runs `hearth serve` for this application, in the place of `artisan serve`. Hearth's own settings (hearth.toml,
 * variables) hold for what no option names. The program takes the place of the PHP process, so a supervisor's signals reach it. */

declare(strict_types=1);

namespace Hearth\Laravel;

use Illuminate\Console\Command;
use RuntimeException;

final class ServeCommand extends Command
{
    protected $signature = 'hearth:serve
        {--host= : Address to listen on; else SERVER_HOST, else 127.0.0.1}
        {--port= : Port to listen on; else SERVER_PORT, else 8080}
        {--workers= : Requests that PHP answers at once; else one per processor}
        {--max-requests= : Requests after which a worker is replaced; else never}
        {--model= : Execution model: snapshot, request, worker, fork, ...}
        {--dev : Edits at once, errors in the browser, pages that reload}
        {--watch : Reload when a file of the application changes}
        {--hearth= : The program; else HEARTH_BIN, else vendor/bin/hearth, else `hearth` on the PATH}
        {options?* : Options of `hearth serve`, after two dashes}';

    protected $description = 'Serve the application with Hearth';

    public function handle(): int
    {
        $folder = $this->laravel->basePath();
        $environment = Program::environment();
        if ($this->option('env') !== null) {
            $environment['APP_ENV'] = (string) $this->option('env');
        }
        try {
            return Program::find($this->option('hearth'), $folder)->become(['serve', $folder, ...$this->flags()], $environment);
        } catch (RuntimeException $failed) {
            $this->error($failed->getMessage());
            return 1;
        }
    }

    /** @return list<string> */
    private function flags(): array
    {
        $host = $this->option('host') ?? $this->laravel['config']['hearth.serve.host'] ?? null;
        $port = $this->option('port') ?? $this->laravel['config']['hearth.serve.port'] ?? null;
        $flags = $host === null && $port === null ? [] : ['--listen', Program::address((string) ($host ?? '127.0.0.1'), (string) ($port ?? 8080))];
        foreach (['workers', 'max-requests', 'model'] as $name) {
            if ($this->option($name) !== null) {
                array_push($flags, "--{$name}", (string) $this->option($name));
            }
        }
        foreach (['dev', 'watch'] as $name) {
            if ($this->option($name)) {
                $flags[] = "--{$name}";
            }
        }
        return [...$flags, ...array_values((array) $this->argument('options'))];
    }
}
