<?php

/** `octane:start --server=hearth` and its companions. Runs against a copy of Octane if OCTANE names one, else against tests/octane, which holds what
 * we rely on. */

declare(strict_types=1);

namespace Hearth\Tests\Laravel;

use Hearth\Tests\Servers;
use PHPUnit\Framework\TestCase;

final class OctaneTest extends TestCase
{
    private const HEARTH = '--server=hearth';

    public static function setUpBeforeClass(): void
    {
        fwrite(STDERR, getenv('OCTANE') ? 'Octane: ' . getenv('OCTANE') . "\n" : "no copy of Octane (OCTANE=path): against the contracts\n");
    }

    public function testOctanesCommandsStartReloadAndStopHearth(): void
    {
        $site = Servers::site('octane', ['index.php' => '<?php echo getenv("LARAVEL_OCTANE") ?: "no Octane", " ", getmypid();']);
        $this->assertSays(1, 'Octane server is not running.', 'octane:status', $site);
        foreach (['octane:reload', 'octane:stop'] as $command) {
            $this->assertSays(1, 'no server answers', $command, $site);
        }

        [$pid, $address] = Servers::artisan('octane', ['octane:start', self::HEARTH, '--workers=1'], $site);
        $this->assertSame('hearth', trim((string) file_get_contents("/proc/{$pid}/comm")));
        $first = file_get_contents($address);
        $this->assertStringStartsWith('no Octane ', $first, 'no event of Octane comes in this model, so that no package may wait for one');
        $this->assertSame($pid, json_decode((string) file_get_contents("{$site}/octane-server-state.json"), true)['masterProcessId']);
        $this->assertSays(0, 'Octane server is running.', 'octane:status', $site);
        $this->assertSays(1, 'Hearth server is already running.', 'octane:start', $site);

        $this->assertSays(0, 'Reloading workers...', 'octane:reload', $site);
        $this->assertNotSame($first, file_get_contents($address), 'another worker process');

        $this->assertSays(0, 'Stopping server...', 'octane:stop', $site);
        $this->assertSame(0, Servers::awaitExit('octane'));
        $this->assertFileDoesNotExist("{$site}/octane-server-state.json");
    }

    public function testOtherServersAreOctanesOwn(): void
    {
        foreach (['octane:start', 'octane:reload', 'octane:stop', 'octane:status'] as $command) {
            [, $output] = Servers::artisanEnds([$command, '--server=none'], Servers::folder());
            $this->assertStringContainsString('Invalid server: none.', $output, $command);
        }
    }

    public function testInTheModelWorkerOctanesScriptRuns(): void
    {
        $site = Servers::site('shared', ['artisan' => '', 'bootstrap/app.php' => '<?php', 'public/index.php' => '<?php echo "index";']);
        if (!is_file((getenv('OCTANE') ?: __DIR__ . '/octane') . '/bin/frankenphp-worker.php')) {
            [$status, $output] = Servers::artisanEnds(['octane:start', self::HEARTH, '--model=worker'], $site);
            $this->assertSame(1, $status);
            $this->assertStringContainsString('Octane 2.3 or later', $output);
            return;
        }
        if (getenv('OCTANE')) {
            $this->addToAssertionCount(1); // its script needs a whole application: this one is not
            return;
        }
        [, $address] = Servers::artisan('shared', ['octane:start', self::HEARTH, '--model=worker', '--workers=1'], $site);
        $this->assertSame("request 1 of {$site}, Octane 1", file_get_contents($address));
        $this->assertSame("request 2 of {$site}, Octane 1", file_get_contents($address));
        $this->assertSame(0, Servers::exitOf('shared', SIGTERM));
    }

    public function testWhatHearthDoesNotTakeIsRefusedByName(): void
    {
        [$status, $output] = Servers::artisanEnds(['octane:start', self::HEARTH, '--https'], Servers::folder());
        // Octane before 2.3 has no such option.
        if (!str_contains($output, '"--https" option does not exist')) {
            $this->assertStringContainsString('acme.domains', $output);
            $this->assertSame(1, $status);
        }
        $this->assertNotSame(0, $status);
    }

    private function assertSays(int $status, string $words, string $command, string $site): void
    {
        [$ended, $output] = Servers::artisanEnds([$command, self::HEARTH], $site);
        $this->assertStringContainsString($words, $output, $command);
        $this->assertSame($status, $ended, $output);
    }
}
