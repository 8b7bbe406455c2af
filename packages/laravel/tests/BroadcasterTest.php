<?php

/** Laravel's broadcasting over the driver `hearth`: the same authorisation as the driver `pusher`,
 * and events to a real `hearth channels`. */

declare(strict_types=1);

namespace Hearth\Tests\Laravel;

use Hearth\Laravel\Broadcaster;
use Hearth\Realtime\Application as PusherApplication;
use Hearth\Realtime\Channels;
use Hearth\Tests\Servers;
use Illuminate\Broadcasting\BroadcastException;
use Illuminate\Broadcasting\BroadcastManager;
use Illuminate\Broadcasting\PresenceChannel;
use Illuminate\Http\Request;
use PHPUnit\Framework\TestCase;
use Symfony\Component\HttpKernel\Exception\AccessDeniedHttpException;

final class BroadcasterTest extends TestCase
{
    /** @param array<string, mixed> $options */
    private function broadcaster(array $options = []): Broadcaster
    {
        $app = Application::with([]);
        ['host' => $host, 'port' => $port] = parse_url(Servers::channels());
        $app['config']->set('broadcasting.connections.hearth', [
            'driver' => 'hearth', 'app_id' => Servers::CHANNELS['id'], 'key' => Servers::CHANNELS['key'], 'secret' => Servers::CHANNELS['secret'],
            'options' => $options + ['host' => $host, 'port' => $port, 'scheme' => 'http'],
        ]);
        $app->singleton(BroadcastManager::class, static fn ($app) => new BroadcastManager($app));
        $broadcaster = $app->make(BroadcastManager::class)->connection('hearth');
        $this->assertInstanceOf(Broadcaster::class, $broadcaster);
        return $broadcaster;
    }

    private static function asks(string $channel, ?string $user, string $socket = '1234.5678'): Request
    {
        $request = Request::create('/broadcasting/auth', 'POST', ['channel_name' => $channel, 'socket_id' => $socket]);
        $request->setUserResolver(static fn () => $user === null ? null : new class ($user) {
            public function __construct(private readonly string $id)
            {
            }

            public function getAuthIdentifier(): string
            {
                return $this->id;
            }
        });
        return $request;
    }

    private static function signature(string $text): string
    {
        return Servers::CHANNELS['key'] . ':' . hash_hmac('sha256', $text, Servers::CHANNELS['secret']);
    }

    public function testAPrivateChannelIsForThoseWhomTheApplicationLetsIn(): void
    {
        $broadcaster = $this->broadcaster();
        $broadcaster->channel('orders.{id}', static fn (object $user, string $id): bool => $user->getAuthIdentifier() === $id);
        $answer = $broadcaster->auth(self::asks('private-orders.7', '7'));
        $this->assertSame(['auth' => self::signature('1234.5678:private-orders.7')], $answer);
        foreach ([self::asks('private-orders.7', '8'), self::asks('private-orders.7', null), self::asks('private-other', '7'), self::asks('', '7'), self::asks('private-orders.7', '7', '1.2:x')] as $refused) {
            try {
                $broadcaster->auth($refused);
                $this->fail('it was let in');
            } catch (AccessDeniedHttpException) {
                $this->addToAssertionCount(1);
            }
        }
    }

    public function testAUserIsSignedInOnASocketOnly(): void
    {
        $channels = new Channels(new PusherApplication(Servers::CHANNELS['id'], Servers::CHANNELS['key'], Servers::CHANNELS['secret']));
        // Laravel before 9 finds none.
        $broadcaster = new class ($channels) extends Broadcaster {
            protected function authenticatedUser($request): array
            {
                return ['id' => '7'];
            }
        };
        $answer = $broadcaster->resolveAuthenticatedUser(self::asks('', '7'));
        $this->assertSame(['auth' => self::signature('1234.5678::user::{"id":"7"}'), 'user_data' => '{"id":"7"}'], $answer);
        $this->expectException(AccessDeniedHttpException::class);
        $broadcaster->resolveAuthenticatedUser(self::asks('', '7', '1234.5678:private-orders.7'));
    }

    public function testAPresenceChannelTellsWhoItIs(): void
    {
        $broadcaster = $this->broadcaster();
        $broadcaster->channel('room', static fn (object $user): array => ['name' => 'Ada']);
        $answer = $broadcaster->auth(self::asks('presence-room', '7'));
        $this->assertSame('{"user_id":"7","user_info":{"name":"Ada"}}', $answer['channel_data']);
        $this->assertSame(self::signature("1234.5678:presence-room:{$answer['channel_data']}"), $answer['auth']);
    }

    public function testAnEncryptedChannelSharesItsSecret(): void
    {
        $broadcaster = $this->broadcaster(['encryption_master_key_base64' => base64_encode(str_repeat('k', 32))]);
        $broadcaster->channel('safe', static fn (): bool => true);
        $answer = $broadcaster->auth(self::asks('private-encrypted-safe', '7'));
        $this->assertSame(base64_encode(hash('sha256', 'private-encrypted-safe' . str_repeat('k', 32), true)), $answer['shared_secret']);
    }

    public function testEventsReachTheServer(): void
    {
        $before = Servers::published();
        $this->broadcaster()->broadcast([new PresenceChannel('room'), 'news'], 'App\\Events\\Said', ['text' => 'hi', 'socket' => '1234.5678']);
        $this->assertSame($before + 2, Servers::published());
    }

    public function testAnEventThatIsNotTakenIsLaravelsException(): void
    {
        $this->expectException(BroadcastException::class);
        $this->expectExceptionMessage('status 413');
        $this->broadcaster()->broadcast(['news'], 'said', ['text' => str_repeat('x', 20_000)]);
    }

    public function testAConnectionWithoutASecretSaysWhatToSet(): void
    {
        $this->expectException(\InvalidArgumentException::class);
        $this->expectExceptionMessage('REVERB_APP_SECRET');
        Broadcaster::of(['app_id' => '1', 'key' => 'k']);
    }
}
