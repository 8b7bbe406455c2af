<?php

/** `php artisan hearth:serve` is `hearth serve` for the application: with its options, environment, signals and exit status. */

declare(strict_types=1);

namespace Hearth\Tests\Laravel;

use Hearth\Laravel\Program;
use Hearth\Tests\Servers;
use PHPUnit\Framework\TestCase;

final class ServeCommandTest extends TestCase
{
    private const PAGE = '<?php echo json_encode([getenv("APP_ENV"), getenv("FROM_DOTENV"), $_GET]);';

    public function testTheServerTakesThePlaceOfTheCommandAndReadsDotenvItself(): void
    {
        $site = Servers::site('serve', ['index.php' => self::PAGE]);
        [$pid, $address] = Servers::artisan('serve', ['hearth:serve', '--workers=1', '--env=testing', '--', '--admin=127.0.0.1:0'], $site);
        $this->assertSame('hearth', trim((string) file_get_contents("/proc/{$pid}/comm")));
        // APP_ENV is from --env; what Laravel has read from .env since the command started is not passed on.
        $this->assertSame('["testing",false,{"a":"1"}]', file_get_contents("{$address}/?a=1"));
        $this->assertSame(0, Servers::exitOf('serve', SIGTERM));
        $this->assertStringContainsString('hearth: admin on', Servers::log('serve'), 'an option after two dashes');
    }

    public function testTheExitStatusIsTheServers(): void
    {
        [$status, $output] = Servers::artisanEnds(['hearth:serve', '--workers=none'], Servers::site('serve', ['index.php' => self::PAGE]));
        $this->assertSame(2, $status, $output);
        $this->assertStringContainsString('--workers', $output);
    }

    public function testWithoutTheProgramItSaysWhatToDo(): void
    {
        [$status, $output] = Servers::artisanEnds(['hearth:serve', '--hearth=no-such-hearth'], Servers::folder());
        $this->assertStringContainsString('install it, or name it with HEARTH_BIN or --hearth=/path/to/hearth', $output);
        $this->assertSame(1, $status);
    }

    public function testAddressesAreWrittenAsHearthTakesThem(): void
    {
        foreach (['localhost' => '127.0.0.1:80', '0.0.0.0' => '0.0.0.0:80', '::1' => '[::1]:80', '[::1]' => '[::1]:80'] as $host => $address) {
            $this->assertSame($address, Program::address($host, '80'));
        }
    }
}
