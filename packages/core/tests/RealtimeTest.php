<?php

/** Signatures equal those in Pusher's documentation, and events reach a real `hearth channels`. */

declare(strict_types=1);

namespace Hearth\Tests;

use Hearth\Realtime\Application;
use Hearth\Realtime\Channels;
use Hearth\Realtime\PublishFailed;
use PHPUnit\Framework\TestCase;

final class RealtimeTest extends TestCase
{
    private static function application(?string $masterKey = null): Application
    {
        return new Application('3', '278d425bdf160c739803', '7ad3773142a6692b25b8', $masterKey);
    }

    /** https://pusher.com/docs/channels/library_auth_reference/auth-signatures/ */
    public function testTheExamplesOfPushersDocumentation(): void
    {
        $application = self::application();
        $this->assertSame(
            ['auth' => '278d425bdf160c739803:58df8b0c36d6982b82c3ecf6b4662e34fe8c25bba48f5369f135bf843651c3a4'],
            $application->subscription('private-foobar', '1234.1234'),
        );
        $presence = $application->subscription('presence-foobar', '1234.1234', ['user_id' => 10, 'user_info' => ['name' => 'Mr. Channels']]);
        $this->assertSame('{"user_id":10,"user_info":{"name":"Mr. Channels"}}', $presence['channel_data']);
        $this->assertSame('278d425bdf160c739803:31935e7d86dba64c2a90aed31fdc61869f9b22ba9d8863bba239c03ca481bc80', $presence['auth']);
    }

    /** https://pusher.com/docs/channels/library_auth_reference/rest-api/#worked-authentication-example */
    public function testTheExampleOfTheHttpApi(): void
    {
        $body = '{"name":"foo","channels":["project-3"],"data":"{\"some\":\"data\"}"}';
        $this->assertSame(
            'auth_key=278d425bdf160c739803&auth_timestamp=1353088179&auth_version=1.0&body_md5=ec365a775a4cd0599faeb73354201b6f'
            . '&auth_signature=da454824c97ba181a32ccc17a72625ba02771f50b50e1e7430e47a1f3f457e6c',
            self::application()->query('POST', '/apps/3/events', $body, 1353088179),
        );
    }

    public function testASubscriptionIsSignedForASocketAndAChannelOnly(): void
    {
        foreach ([['private-a', '1.2:private-b'], ['private-a b', '1.2'], ["private-a\n", '1.2']] as [$channel, $socket]) {
            try {
                self::application()->subscription($channel, $socket);
                $this->fail("{$channel} for {$socket}");
            } catch (\InvalidArgumentException $e) {
                $this->addToAssertionCount(1);
            }
        }
    }

    public function testAUserIsSignedInForASocketOnly(): void
    {
        $application = self::application();
        $user = '{"id":"7"}';
        $this->assertSame(
            ['auth' => '278d425bdf160c739803:' . hash_hmac('sha256', "1.2::user::{$user}", '7ad3773142a6692b25b8'), 'user_data' => $user],
            $application->signIn('1.2', ['id' => '7']),
        );
        // Signed, these would be a subscription and a call of the HTTP API.
        foreach (['1.2:private-a', "GET\n/apps/3/channels\nauth_version=1.0&z=", "1.2\n", ' 1.2', '1', ''] as $socket) {
            try {
                $application->signIn($socket, ['id' => '7']);
                $this->fail($socket);
            } catch (\InvalidArgumentException $e) {
                $this->addToAssertionCount(1);
            }
        }
    }

    public function testAnEncryptedChannelIsReadWithTheSecretThatItsSubscribersGet(): void
    {
        $application = self::application(str_repeat('k', 32));
        $secret = base64_decode($application->subscription('private-encrypted-a', '1.2')['shared_secret'], true);
        $sent = json_decode($application->encrypted('private-encrypted-a', '{"a":1}'), true);
        $this->assertSame('{"a":1}', sodium_crypto_secretbox_open(base64_decode($sent['ciphertext'], true), base64_decode($sent['nonce'], true), $secret));
    }

    public function testAWebhookIsKnownByItsSignature(): void
    {
        $signature = hash_hmac('sha256', '{}', '7ad3773142a6692b25b8');
        $this->assertTrue(self::application()->hasSigned('{}', '278d425bdf160c739803', $signature));
        $this->assertFalse(self::application()->hasSigned('{ }', '278d425bdf160c739803', $signature));
        $this->assertFalse(self::application()->hasSigned('{}', 'another', $signature));
    }

    public function testEventsAreTakenByTheHttpApi(): void
    {
        $application = new Application(Servers::CHANNELS['id'], Servers::CHANNELS['key'], Servers::CHANNELS['secret']);
        $channels = new Channels($application, Servers::channels());
        $before = Servers::published();
        $channels->publish(array_map(static fn (int $n): string => "c{$n}", range(1, 150)), 'said', ['text' => 'hi']);
        $this->assertSame($before + 150, Servers::published());
    }

    public function testWhatIsNotTakenSaysWhy(): void
    {
        $forged = new Application(Servers::CHANNELS['id'], Servers::CHANNELS['key'], 'forged');
        try {
            (new Channels($forged, Servers::channels()))->publish(['a'], 'said', 1);
            $this->fail('it was taken');
        } catch (PublishFailed $e) {
            $this->assertSame(401, $e->getCode());
            $this->assertStringContainsString('status 401', $e->getMessage());
        }
        $this->expectException(PublishFailed::class);
        $this->expectExceptionMessage('no HTTP API to call');
        (new Channels($forged))->publish(['a'], 'said', 1);
    }
}
