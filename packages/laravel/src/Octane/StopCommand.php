<?php

/** `octane:stop`, which knows Hearth too. */

declare(strict_types=1);

namespace Hearth\Laravel\Octane;

use Laravel\Octane\Commands\StopCommand as OctanesStopCommand;

class StopCommand extends OctanesStopCommand
{
    use ForHearth;

    public function handle()
    {
        if (!$this->isForHearth()) {
            return parent::handle();
        }
        // Without a running server `hearth stop` says so; one that still boots is stopped, too.
        return $this->with(function (Server $server): int {
            $this->info('Stopping server...');
            return $server->stopServer() ? 0 : 1;
        });
    }
}
