<?php

/** `php artisan hearth:channels` is `hearth channels` with the application's credentials. */

declare(strict_types=1);

namespace Hearth\Tests\Laravel;

use Hearth\Realtime\Application as PusherApplication;
use Hearth\Tests\Servers;
use PHPUnit\Framework\TestCase;

final class ChannelsCommandTest extends TestCase
{
    public function testTheProgramTakesThePlaceOfTheCommandAndHasTheApplication(): void
    {
        [$pid, $address] = Servers::artisan();
        $this->assertSame('hearth', trim((string) file_get_contents("/proc/{$pid}/comm")));
        $application = new PusherApplication(Servers::CHANNELS['id'], Servers::CHANNELS['key'], Servers::CHANNELS['secret']);
        $path = '/apps/' . Servers::CHANNELS['id'] . '/channels';
        $this->assertSame('{"channels":{}}', file_get_contents("{$address}{$path}?{$application->query('GET', $path, '')}"));
        Servers::end('artisan');
    }

    public function testWithoutTheProgramItSaysWhatToDo(): void
    {
        $command = [PHP_BINARY, __DIR__ . '/artisan.php', 'hearth:channels', '--hearth=/no/such/hearth'];
        exec(implode(' ', array_map(escapeshellarg(...), $command)) . ' 2>&1', $lines, $status);
        $this->assertStringContainsString('--hearth=/path/to/hearth', implode("\n", $lines));
        $this->assertSame(1, $status);
    }
}
