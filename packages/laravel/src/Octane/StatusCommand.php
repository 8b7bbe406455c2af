<?php

/** `octane:status`, which knows Hearth too. */

declare(strict_types=1);

namespace Hearth\Laravel\Octane;

use Laravel\Octane\Commands\StatusCommand as OctanesStatusCommand;

class StatusCommand extends OctanesStatusCommand
{
    use ForHearth;

    public function handle()
    {
        if (!$this->isForHearth()) {
            return parent::handle();
        }
        return $this->with(function (Server $server): int {
            $isRunning = $server->serverIsRunning();
            $this->info($isRunning ? 'Octane server is running.' : 'Octane server is not running.');
            return $isRunning ? 0 : 1;
        });
    }
}
