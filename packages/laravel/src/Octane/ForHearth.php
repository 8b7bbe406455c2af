<?php

/** What Octane's commands have in common for the server `hearth`. */

declare(strict_types=1);

namespace Hearth\Laravel\Octane;

use Closure;
use Hearth\Laravel\Program;
use RuntimeException;

trait ForHearth
{
    private function isForHearth(): bool
    {
        return ($this->option('server') ?: $this->laravel['config']['octane.server']) === 'hearth';
    }

    /** @param Closure(Server): int $do */
    private function with(Closure $do): int
    {
        $folder = $this->laravel->basePath();
        $stateFile = (string) ($this->laravel['config']['octane.state_file']
            ?? $this->laravel->storagePath() . '/logs/octane-server-state.json');
        try {
            return $do(new Server(Program::find(null, $folder), $folder, $stateFile));
        } catch (RuntimeException $failed) {
            $this->error($failed->getMessage());
            return 1;
        }
    }
}
