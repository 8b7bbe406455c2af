<?php

/** See OctaneServiceProvider.php. */

declare(strict_types=1);

namespace Laravel\Octane\Commands;

use Illuminate\Console\Command;

class ReloadCommand extends Command
{
    public $signature = 'octane:reload {--server=}';

    public function handle()
    {
        $this->error("Invalid server: {$this->option('server')}.");
        return 1;
    }
}
