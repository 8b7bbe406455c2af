<?php

/** `octane:reload`, which knows Hearth too. */

declare(strict_types=1);

namespace Hearth\Laravel\Octane;

use Laravel\Octane\Commands\ReloadCommand as OctanesReloadCommand;

class ReloadCommand extends OctanesReloadCommand
{
    use ForHearth;

    public function handle()
    {
        if (!$this->isForHearth()) {
            return parent::handle();
        }
        // Without a running server `hearth reload` says so.
        return $this->with(function (Server $server): int {
            $this->info('Reloading workers...');
            return $server->reload() ? 0 : 1;
        });
    }
}
