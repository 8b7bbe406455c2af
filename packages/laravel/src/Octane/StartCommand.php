<?php

/** `octane:start`, which knows Hearth too: `--server=hearth`, or `octane.server` in the configuration. The command becomes the server.
 *
 * In the models that restore or end a process after each request Hearth's own script answers. Octane's listeners are never called
 * there, and `LARAVEL_OCTANE` is not set, because no Octane event comes. In the model `worker`, where requests share memory, Octane's script and its
 * listeners run. */

declare(strict_types=1);

namespace Hearth\Laravel\Octane;

use Hearth\Laravel\Program;
use Laravel\Octane\Commands\StartCommand as OctanesStartCommand;
use ReflectionClass;
use RuntimeException;

class StartCommand extends OctanesStartCommand
{
    use ForHearth;

    public function __construct()
    {
        $this->signature .= '
                    {--model= : The execution model; else php.model of hearth.toml, else snapshot [Hearth only]}';
        parent::__construct();
    }

    public function handle()
    {
        if (!$this->isForHearth()) {
            return parent::handle();
        }
        return $this->with(function (Server $server): int {
            if ($server->serverIsRunning()) {
                $this->error('Hearth server is already running.');
                return 1;
            }
            $environment = Program::environment();
            if ($this->option('env') !== null) {
                $environment['APP_ENV'] = (string) $this->option('env');
            }
            return $server->start($this->flags($environment), $environment, [
                'appName' => $this->laravel['config']['app.name'] ?? 'Laravel',
                'host' => $this->getHost(),
                'port' => (int) $this->getPort(),
                'workers' => $this->option('workers') === 'auto' ? 0 : (int) $this->option('workers'),
                'octaneConfig' => $this->laravel['config']['octane'],
            ]);
        });
    }

    /**
     * @param array<string, string> $environment
     * @return list<string>
     * @throws RuntimeException for an option that would silently do nothing
     */
    private function flags(array $environment): array
    {
        if ($this->hasOption('https') && $this->option('https')) {
            throw new RuntimeException(
                '--https is FrankenPHP\'s: Hearth has `acme.domains` and `http.tls_local` in hearth.toml (docs/guide/tls.md)',
            );
        }
        $flags = ['--listen', Program::address((string) $this->getHost(), (string) $this->getPort())];
        if ($this->option('workers') !== 'auto') {
            array_push($flags, '--workers', (string) $this->option('workers'));
        }
        // Octane's default of 500 is for memory that leaks.
        if ($this->input->hasParameterOption('--max-requests')) {
            array_push($flags, '--max-requests', (string) $this->option('max-requests'));
        }
        $limit = $this->laravel['config']['octane.max_execution_time'];
        if (is_numeric($limit)) {
            array_push($flags, '--request-timeout', $limit > 0 ? ((int) $limit) . 's' : 'off');
        }
        if ($this->hasOption('admin-port') && $this->option('admin-port')) {
            array_push($flags, '--admin', '127.0.0.1:' . (int) $this->option('admin-port'));
        }
        if ($this->hasOption('log-level') && $this->option('log-level')) {
            array_push($flags, '--log-level', strtolower((string) $this->option('log-level')));
        }
        if ($this->option('watch')) {
            $flags[] = '--watch';
        }
        $model = $this->option('model') ?? $environment['HEARTH_PHP_MODEL'] ?? null;
        if ($this->option('model') !== null) {
            array_push($flags, '--model', (string) $model);
        }
        if (in_array($model, ['worker', 'A'], true)) {
            array_push($flags, '--worker-script', self::script());
        }
        return $flags;
    }

    /** The script that Octane has for FrankenPHP, which runs in Hearth unchanged. */
    private static function script(): string
    {
        $script = dirname((string) (new ReflectionClass(OctanesStartCommand::class))->getFileName(), 3) . '/bin/frankenphp-worker.php';
        return is_file($script) ? $script
            : throw new RuntimeException('this Octane has no bin/frankenphp-worker.php: the model worker needs Octane 2.3 or later');
    }
}
