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
        [$pid, $address] = Servers::artisan('artisan', ['hearth:channels'], Servers::folder());
        $this->assertSame('hearth', trim((string) file_get_contents("/proc/{$pid}/comm")));
        $application = new PusherApplication(Servers::CHANNELS['id'], Servers::CHANNELS['key'], Servers::CHANNELS['secret']);
        $path = '/apps/' . Servers::CHANNELS['id'] . '/channels';
        $this->assertSame('{"channels":{}}', file_get_contents("{$address}{$path}?{$application->query('GET', $path, '')}"));
        Servers::end('artisan');
    }

    public function testWithoutTheProgramItSaysWhatToDo(): void
    {
        [$status, $output] = Servers::artisanEnds(['hearth:channels', '--hearth=/no/such/hearth'], Servers::folder());
        $this->assertStringContainsString('--hearth=/path/to/hearth', $output);
        $this->assertSame(1, $status);
    }
}
