<?php

/** See OctaneServiceProvider.php. */

declare(strict_types=1);

namespace Laravel\Octane\Commands;

use Illuminate\Console\Command;

class StatusCommand extends Command
{
    public $signature = 'octane:status {--server=}';

    public function handle()
    {
        $this->error("Invalid server: {$this->option('server')}.");
        return 1;
    }
}
