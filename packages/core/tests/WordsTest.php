<?php

/** The fields sent to the broker, the fields it returns, and the parsing of calls, without any
 * socket. */

declare(strict_types=1);

namespace Hearth\Tests;

use Hearth\Egress\Broker;
use Hearth\Egress\Control;
use Hearth\Egress\CurlOptions;
use Hearth\Egress\Proxies;
use Hearth\Egress\StructuredField;
use Hearth\Egress\Target;
use Hearth\Egress\Timing;
use Hearth\Egress\Verdict;
use PHPUnit\Framework\Attributes\DataProvider;
use PHPUnit\Framework\TestCase;

final class WordsTest extends TestCase
{
    public function testAControlThatWantsNothingIsItsToken(): void
    {
        $this->assertSame('token="abc"', (new Control())->field('abc'));
    }

    public function testAControlSaysAllThatIsWanted(): void
    {
        $control = new Control(
            verify: false,
            ca: '/a "b".pem',
            cert: '/c.pem',
            key: '/k\\.pem',
            pin: 'sha256//AAAA=',
            tlsMin: '1.2',
            tlsMax: '1.3',
            http: '2',
            ip: 6,
            interface: '127.0.0.2',
            connectTo: '[::1]:443',
            proxy: 'socks5h://u:p@proxy:1080',
            connectTimeout: 1500,
            timing: true,
        );
        $this->assertSame(
            'token="t", verify=?0, ca="/a \"b\".pem", cert="/c.pem", key="/k\\\\.pem", pin="sha256//AAAA=", interface="127.0.0.2", connect-to="[::1]:443", '
            . 'proxy="socks5h://u:p@proxy:1080", tls-min=1.2, tls-max=1.3, http=2.0, ip=6, connect-timeout=1500, timing=?1',
            $control->field('t')
        );
    }

    /** A value could otherwise end the field, and begin another. */
    public function testWhatAFieldCannotHoldIsNotSaid(): void
    {
        foreach (["/a\r\nX: y", '/grün.pem', "/a\0", "/a\x7f"] as $path) {
            $this->assertNull((new Control(ca: $path))->field('t'));
        }
    }

    public function testVerdictsAreRead(): void
    {
        $verdict = Verdict::readLine('hearth-declined: certificate; errno=60; message="SSL: \"no\" \\\\ good; really, no"');
        $this->assertSame([true, 'certificate', 60, 'SSL: "no" \\ good; really, no', true], [$verdict->declined, $verdict->reason, $verdict->errno, $verdict->message, $verdict->direct()]);
        $verdict = Verdict::readLine('Hearth-Failed: reset;errno=56');
        $this->assertSame([false, 'reset', 56, false], [$verdict->declined, $verdict->reason, $verdict->errno, $verdict->direct()]);
        $this->assertNull(Verdict::readLine('Hearth-Timing: dns=1'));
        $this->assertNull(Verdict::readLine('X-Hearth-Failed: reset'));
        $this->assertTrue(Verdict::read('Hearth-Declined', 'queue; errno=28')->direct());
        $this->assertFalse(Verdict::read('Hearth-Declined', 'connect; errno=28')->direct());
        // What cannot be understood still declines.
        $this->assertTrue(Verdict::read('Hearth-Declined', '"')->direct());
    }

    public function testTimingsAreReadAndPutInPlace(): void
    {
        $timing = Timing::read('dns=10, connect=20, tls=30, first-byte=19512, reused=?1, protocol="2", address="[::1]:443"');
        $this->assertSame(['::1', 443, true, '2', 19512], [$timing->ip(), $timing->port(), $timing->reused, $timing->protocol, $timing->firstByte]);
        $info = Timing::amend(['url' => 'http://hearth/', 'primary_ip' => '', 'connect_time' => 0.5, 'connect_time_us' => 500_000, 'total_time' => 1.0], 'https://a.test/', $timing);
        $this->assertSame(['https://a.test/', 'HTTPS', '::1', 443, 0.00002, 20, 1.0], [
            $info['url'], $info['scheme'], $info['primary_ip'], $info['primary_port'], $info['connect_time'], $info['connect_time_us'], $info['total_time'],
        ]);
        $this->assertNull(Timing::read('"'));
    }

    public function testStructuredFieldsThatAreNoneAreEmpty(): void
    {
        foreach (['', ';', 'a=', 'a="', 'a b', '=1', 'A=1', "a=1\x00"] as $field) {
            $this->assertSame([], StructuredField::dictionary($field), $field);
        }
        $this->assertSame(['a' => true, 'b' => false, 'c' => 1.5, 'd' => 'x'], StructuredField::dictionary('a, b=?0,c=1.5 , d=x'));
        $this->assertSame([], StructuredField::item('a b; c=1'));
        $this->assertSame([], StructuredField::item('a; C=1'));
    }

    /** @return iterable<string, array{string, ?string}> */
    public static function urls(): iterable
    {
        yield 'plain' => ['http://a.test', 'http://a.test/'];
        yield 'with all' => ['https://u%40:p@A.test:8443/x?y=%20&z', 'https://A.test:8443/x?y=%20&z'];
        yield 'the scheme\'s port' => ['https://a.test:443/', 'https://a.test/'];
        yield 'an address' => ['http://[::1]:8080/?', 'http://[::1]:8080/?'];
        yield 'another scheme' => ['ftp://a.test/', null];
        yield 'no host' => ['http:///x', null];
        yield 'dots, which curl takes out' => ['http://a.test/x/../y', null];
        yield 'dots in a name' => ['http://a.test/x..y/.z', 'http://a.test/x..y/.z'];
        yield 'a space' => ['http://a.test/x y', null];
        yield 'a line more' => ["http://a.test/\r\nX: y", null];
        yield 'letters beyond ASCII' => ['http://ä.test/', null];
        yield 'a strange host' => ['http://a_b.test\\@evil.test/', null];
        yield 'port 0' => ['http://a.test:0/', null];
    }

    /** @dataProvider urls */
    #[DataProvider('urls')]
    public function testTargets(string $url, ?string $absolute): void
    {
        $this->assertSame($absolute, Target::of($url)?->absolute());
    }

    public function testHostsAreNamedAloneOrWithAllBelow(): void
    {
        $target = Target::of('https://api.Example.test/');
        foreach (['API.example.test' => true, '*.example.test' => true, 'example.test' => false, '*.api.example.test' => false, '*ample.test' => false] as $pattern => $is) {
            $this->assertSame($is, $target->isOneOf([$pattern]), $pattern);
        }
    }

    public function testUserInformationStaysHere(): void
    {
        $target = Target::of('http://us%3Aer:p%40ss@a.test/');
        $this->assertSame(['us:er', 'p@ss', 'http://a.test/', 'a.test:80'], [$target->user, $target->password, $target->absolute(), $target->place()]);
    }

    /** @return iterable<string, array{array<int, mixed>, ?array<string, mixed>}> */
    public static function options(): iterable
    {
        $file = __FILE__;
        yield 'nothing' => [[], []];
        yield 'what is the same on both ways' => [[CURLOPT_TIMEOUT => 3, CURLOPT_USERAGENT => 'x', CURLOPT_ENCODING => ''], []];
        yield 'an unknown option' => [[CURLOPT_SSL_CIPHER_LIST => 'DEFAULT'], null];
        yield 'certificate information' => [[CURLOPT_CERTINFO => true], null];
        yield 'no verification' => [[CURLOPT_SSL_VERIFYPEER => 0, CURLOPT_SSL_VERIFYHOST => 0], ['verify' => false]];
        yield 'half of it' => [[CURLOPT_SSL_VERIFYPEER => false], null];
        yield 'the other half' => [[CURLOPT_SSL_VERIFYHOST => 0], null];
        yield 'authorities' => [[CURLOPT_CAINFO => $file], ['ca' => $file]];
        yield 'authorities that are not there' => [[CURLOPT_CAINFO => '/nowhere.pem'], null];
        yield 'a folder of them' => [[CURLOPT_CAPATH => '/etc'], null];
        yield 'a certificate with its key in it' => [[CURLOPT_SSLCERT => $file], ['cert' => $file, 'key' => $file]];
        yield 'a certificate and a key' => [[CURLOPT_SSLCERT => $file, CURLOPT_SSLKEY => $file, CURLOPT_SSLCERTTYPE => 'PEM'], ['cert' => $file, 'key' => $file]];
        yield 'a passphrase' => [[CURLOPT_SSLCERT => $file, CURLOPT_KEYPASSWD => 'x'], null];
        yield 'not PEM' => [[CURLOPT_SSLCERT => $file, CURLOPT_SSLCERTTYPE => 'P12'], null];
        yield 'pins' => [[CURLOPT_PINNEDPUBLICKEY => 'sha256//a=;sha256//b='], ['pin' => 'sha256//a=;sha256//b=']];
        yield 'a pin in a file' => [[CURLOPT_PINNEDPUBLICKEY => '/a.pem'], null];
        yield 'TLS 1.3' => [[CURLOPT_SSLVERSION => CURL_SSLVERSION_TLSv1_3], ['tlsMin' => '1.3']];
        yield 'TLS 1.2 alone' => [[CURLOPT_SSLVERSION => CURL_SSLVERSION_TLSv1_2 | CURL_SSLVERSION_MAX_TLSv1_2], ['tlsMin' => '1.2', 'tlsMax' => '1.2']];
        yield 'TLS 1.1 at most' => [[CURLOPT_SSLVERSION => CURL_SSLVERSION_MAX_TLSv1_1], null];
        yield 'IPv6' => [[CURLOPT_IPRESOLVE => CURL_IPRESOLVE_V6], ['ip' => 6]];
        yield 'HTTP/2 at once' => [[CURLOPT_HTTP_VERSION => CURL_HTTP_VERSION_2_PRIOR_KNOWLEDGE], ['http' => '2']];
        yield 'HTTP/1.0' => [[CURLOPT_HTTP_VERSION => CURL_HTTP_VERSION_1_0], null];
        yield 'seconds for the connection' => [[CURLOPT_CONNECTTIMEOUT => 2], ['connectTimeout' => 2000]];
        yield 'an address for the name' => [[CURLOPT_RESOLVE => ['b.test:443:127.0.0.2', 'a.test:443:127.0.0.1']], ['connectTo' => '127.0.0.1:443']];
        yield 'an IPv6 address for the name' => [[CURLOPT_RESOLVE => ['a.test:443:[::1]']], ['connectTo' => '[::1]:443']];
        yield 'an address for another' => [[CURLOPT_RESOLVE => ['b.test:443:127.0.0.2']], []];
        yield 'a name forgotten' => [[CURLOPT_RESOLVE => ['-a.test:443']], null];
        yield 'addresses for the name' => [[CURLOPT_RESOLVE => ['a.test:443:127.0.0.1,127.0.0.2']], null];
        yield 'another place' => [[CURLOPT_CONNECT_TO => ['a.test:443:c.test:']], ['connectTo' => 'c.test:443']];
        yield 'another place for all' => [[CURLOPT_CONNECT_TO => ['::[::1]:8443']], ['connectTo' => '[::1]:8443']];
        yield 'another place for others' => [[CURLOPT_CONNECT_TO => ['a.test:80:c.test:80']], []];
    }

    /**
     * @dataProvider options
     * @param array<int, mixed> $options
     * @param ?array<string, mixed> $wanted
     */
    #[DataProvider('options')]
    public function testCurlOptions(array $options, ?array $wanted): void
    {
        $control = CurlOptions::read($options, new Control(), 'a.test:443');
        $this->assertEquals($wanted === null ? null : (new Control())->with($wanted), $control);
    }

    /** @return iterable<string, array{array<string, string>, string, string, ?string, ?string}> */
    public static function proxies(): iterable
    {
        yield 'none' => [[], 'https', 'a.test', null, null];
        yield 'named' => [[], 'https', 'a.test', 'proxy.test:3128', 'http://proxy.test:3128'];
        yield 'named as none' => [['https_proxy' => 'http://p:1'], 'https', 'a.test', '', null];
        yield 'of the environment' => [['https_proxy' => 'http://u:p@p.test:1'], 'https', 'a.test', null, 'http://u:p@p.test:1'];
        yield 'in capitals' => [['HTTPS_PROXY' => 'p.test:1'], 'https', 'a.test', null, 'http://p.test:1'];
        yield 'in capitals for http, which may come from a client' => [['HTTP_PROXY' => 'p.test:1'], 'http', 'a.test', null, null];
        yield 'for all' => [['all_proxy' => 'socks5h://p.test'], 'http', 'a.test', null, 'socks5h://p.test:1080'];
        yield 'excepted' => [['http_proxy' => 'p:1', 'no_proxy' => 'b.test, .test'], 'http', 'a.test', null, null];
        yield 'not excepted' => [['http_proxy' => 'p:1', 'no_proxy' => 'b.test,est'], 'http', 'a.test', null, 'http://p:1'];
        yield 'all excepted' => [['http_proxy' => 'p:1', 'no_proxy' => '*'], 'http', 'a.test', null, null];
        yield 'networks' => [['http_proxy' => 'p:1', 'no_proxy' => '10.0.0.0/8'], 'http', '10.1.2.3', null, Proxies::UNCERTAIN];
        yield 'networks, for a name' => [['http_proxy' => 'p:1', 'no_proxy' => '10.0.0.0/8'], 'http', 'a.test', null, 'http://p:1'];
        yield 'over TLS' => [[], 'http', 'a.test', 'https://p.test', Proxies::UNCERTAIN];
        yield 'SOCKS4' => [[], 'http', 'a.test', 'socks4://p.test', Proxies::UNCERTAIN];
    }

    /**
     * @dataProvider proxies
     * @param array<string, string> $environment
     */
    #[DataProvider('proxies')]
    public function testProxies(array $environment, string $scheme, string $host, ?string $named, ?string $proxy): void
    {
        foreach ($environment as $name => $value) {
            putenv("{$name}={$value}");
        }
        try {
            $this->assertSame($proxy, Proxies::for($scheme, $host, $named));
        } finally {
            array_map(putenv(...), array_keys($environment));
        }
    }

    public function testTheBrokerIsTheOneOfTheEnvironmentAndItsTokenIsTheNewest(): void
    {
        $folder = Servers::folder() . '/token';
        @mkdir($folder);
        $file = "{$folder}/egress.token";
        file_put_contents($file, "first\n");
        putenv("HEARTH_EGRESS={$folder}/egress.sock");
        try {
            $broker = Broker::fromEnvironment(static fn () => null);
        } finally {
            putenv('HEARTH_EGRESS');
        }
        $this->assertTrue($broker->configured());
        $this->assertSame("{$folder}/egress.sock", $broker->listener()->socket);
        $this->assertSame('token="first"', $broker->listener()->control(new Control()));
        $this->assertInstanceOf('Hearth\Egress\Door', $broker->door(), 'the previous names work');
        // As a broker that starts does it: another file in its place.
        file_put_contents("{$file}.new", "second, longer\n");
        rename("{$file}.new", $file);
        $this->assertSame('token="second, longer"', $broker->listener()->control(new Control()));
        unlink($file);
        $this->assertNull($broker->listener());
        $this->assertFalse(Broker::fromEnvironment()->configured());
    }

    public function testASocketOfAUserWhoIsNotTrustedIsNoBroker(): void
    {
        if (!function_exists('posix_geteuid') || posix_geteuid() !== 0) {
            // Only root can give a file to another user.
            $this->expectNotToPerformAssertions();
            return;
        }
        $folder = Servers::folder() . '/owners';
        @mkdir($folder);
        $socket = "{$folder}/egress.sock";
        file_put_contents("{$folder}/egress.token", "word\n");
        $listener = stream_socket_server("unix://{$socket}");
        $notices = [];
        $trusts = static function () use ($socket, &$notices): bool {
            $notice = static function (string $text) use (&$notices): void {
                $notices[] = $text;
            };
            return (new Broker($socket, $notice))->listener() !== null;
        };
        $this->assertTrue($trusts(), 'our own');
        // Below /tmp: anybody could have made the folder.
        chown($folder, 54321);
        chown($socket, 54321);
        $this->assertFalse($trusts());
        $this->assertCount(1, $notices);
        $this->assertStringContainsString('not trusted', $notices[0]);
        foreach (['54321' => true, '54322' => false, '54321x' => false, '' => false] as $owner => $trusted) {
            putenv("HEARTH_EGRESS_OWNER={$owner}");
            try {
                $this->assertSame($trusted, $trusts(), "'{$owner}'");
            } finally {
                putenv('HEARTH_EGRESS_OWNER');
            }
        }
        fclose($listener);
    }

    public function testWhereTheExtensionTakesCareOfCurlThereIsNoBroker(): void
    {
        $configured = static fn (string|false $egress, string|false $curl): bool => Broker::fromEnvironment(
            static fn () => null,
            static fn (string $name) => ['hearth.egress' => $egress, 'hearth.intercept_curl' => $curl][$name],
        )->configured();
        putenv('HEARTH_EGRESS=/run/hearth/egress.sock');
        try {
            $this->assertFalse($configured('auto', '1'));
            $this->assertFalse($configured('/run/other.sock', 'on'));
            foreach ([['auto', '0'], ['auto', ''], ['', '1'], ['0', '1'], ['1', '1'], [false, false]] as [$egress, $curl]) {
                $this->assertTrue($configured($egress, $curl), var_export([$egress, $curl], true));
            }
        } finally {
            putenv('HEARTH_EGRESS');
        }
        // The extension reads the environment only, so it does not know this setting.
        $_SERVER['HEARTH_EGRESS'] = '/run/hearth/egress.sock';
        try {
            $this->assertTrue($configured('auto', '1'));
        } finally {
            unset($_SERVER['HEARTH_EGRESS']);
        }
    }
}
