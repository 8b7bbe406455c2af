<?php

/** See OctaneServiceProvider.php: of the start command, its options, its host and port, and that it refuses servers that it does not know. */

declare(strict_types=1);

namespace Laravel\Octane\Commands;

use Illuminate\Console\Command;

class StartCommand extends Command
{
    public $signature = 'octane:start {--server=} {--host=} {--port=} {--admin-port=} {--workers=auto} {--max-requests=500} {--https} {--watch}
        {--log-level=}';

    public function handle()
    {
        $this->error("Invalid server: {$this->option('server')}.");
        return 1;
    }

    protected function getHost()
    {
        return $this->option('host') ?? '127.0.0.1';
    }

    protected function getPort()
    {
        return $this->option('port') ?? '8000';
    }
}
