<?php

/** Hearth as one of Octane's servers: whether it runs for this application, its reload and its stop, by `hearth status`, `reload`
 * and `stop`. They find the server by the application's folder, so no state file is needed; one is written for tools that read
 * Octane's. */

declare(strict_types=1);

namespace Hearth\Laravel\Octane;

use Hearth\Laravel\Program;
use Laravel\Octane\Contracts\ServerProcessInspector;

final class Server implements ServerProcessInspector
{
    public function __construct(private readonly Program $program, private readonly string $folder, private readonly string $stateFile)
    {
    }

    public function serverIsRunning(): bool
    {
        return $this->program->run(['status', $this->folder], Program::environment(), true) === 0;
    }

    public function reloadServer(): void
    {
        $this->reload();
    }

    /** Waits until the new release serves. Returns whether it does: if not, the old one goes on, and the reason is printed. */
    public function reload(): bool
    {
        return $this->program->run(['reload', $this->folder], Program::environment()) === 0;
    }

    public function stopServer(): bool
    {
        $stopped = $this->program->run(['stop', $this->folder], Program::environment()) === 0;
        if (is_file($this->stateFile)) {
            @unlink($this->stateFile);
        }
        return $stopped;
    }

    /**
     * Becomes the server: this process is its main process.
     *
     * @param list<string> $flags of `hearth serve`
     * @param array<string, string> $environment
     * @param array<string, mixed> $state
     */
    public function start(array $flags, array $environment, array $state): int
    {
        if (is_writable(is_file($this->stateFile) ? $this->stateFile : dirname($this->stateFile))) {
            file_put_contents($this->stateFile, json_encode(['masterProcessId' => getmypid(), 'state' => $state], JSON_PRETTY_PRINT));
        }
        return $this->program->become(['serve', $this->folder, ...$flags], $environment);
    }
}
