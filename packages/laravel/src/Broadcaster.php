<?php

/**
 * Broadcasting over Hearth: events go through the server that runs the request, otherwise over the HTTP API. Answers to subscribing
 * clients equal those of Laravel's PusherBroadcaster. It needs no library of Pusher's.
 */

declare(strict_types=1);

namespace Hearth\Laravel;

use Hearth\Realtime\Application;
use Hearth\Realtime\Channels;
use Hearth\Realtime\PublishFailed;
use Illuminate\Broadcasting\BroadcastException;
use Illuminate\Broadcasting\Broadcasters\Broadcaster as LaravelsBroadcaster;
use Illuminate\Broadcasting\Broadcasters\UsePusherChannelConventions;
use Illuminate\Support\Arr;
use Symfony\Component\HttpKernel\Exception\AccessDeniedHttpException;

class Broadcaster extends LaravelsBroadcaster
{
    use UsePusherChannelConventions;

    public function __construct(private readonly Channels $channelsOfApplication)
    {
    }

    /** @param array<string, mixed> $connection from config/broadcasting.php, like those of the drivers `pusher` and `reverb` */
    public static function of(array $connection): self
    {
        foreach (['app_id', 'key', 'secret'] as $name) {
            if (!is_scalar($connection[$name] ?? null) || (string) $connection[$name] === '') {
                throw new \InvalidArgumentException("The broadcasting connection `hearth` has no {$name}: set REVERB_APP_ID, REVERB_APP_KEY and REVERB_APP_SECRET (or PUSHER_APP_ID and so on).");
            }
        }
        $options = (array) ($connection['options'] ?? []);
        $masterKey = base64_decode((string) ($options['encryption_master_key_base64'] ?? ''), true) ?: null;
        $application = new Application((string) $connection['app_id'], (string) $connection['key'], (string) $connection['secret'], $masterKey);
        return new self(new Channels($application, self::api($options), (array) ($connection['curl'] ?? [])));
    }

    /** @param array<string, mixed> $options */
    private static function api(array $options): ?string
    {
        if (empty($options['host'])) {
            return null;
        }
        $scheme = $options['scheme'] ?? 'https';
        $port = $options['port'] ?? null;
        return "{$scheme}://{$options['host']}:" . ($port ?: ($scheme === 'https' ? 443 : 80));
    }

    public function auth($request)
    {
        $channel = (string) $request->channel_name;
        $name = $this->normalizeChannelName($channel);
        if ($channel === '' || ($this->isGuardedChannel($channel) && !$this->retrieveUser($request, $name))) {
            throw new AccessDeniedHttpException();
        }
        return $this->verifyUserCanAccessChannel($request, $name);
    }

    public function validAuthenticationResponse($request, $result)
    {
        $channel = (string) $request->channel_name;
        $member = null;
        if (str_starts_with($channel, 'presence-')) {
            $user = $this->retrieveUser($request, $this->normalizeChannelName($channel));
            $id = method_exists($user, 'getAuthIdentifierForBroadcasting') ? $user->getAuthIdentifierForBroadcasting() : $user->getAuthIdentifier();
            $member = ['user_id' => (string) $id, 'user_info' => $result];
        }
        try {
            $answer = $this->channelsOfApplication->application->subscription($channel, (string) $request->socket_id, $member);
        } catch (\InvalidArgumentException $e) {
            throw new AccessDeniedHttpException($e->getMessage(), $e);
        }
        $callback = $request->input('callback', false);
        return $callback ? response()->json($answer)->withCallback($callback) : $answer;
    }

    /** Laravel 9 and later: the answer to a client that signs its user in. */
    public function resolveAuthenticatedUser($request)
    {
        $user = $this->authenticatedUser($request);
        try {
            return $user ? $this->channelsOfApplication->application->signIn((string) $request->socket_id, $user) : null;
        } catch (\InvalidArgumentException $e) {
            throw new AccessDeniedHttpException($e->getMessage(), $e);
        }
    }

    /** The user that the application's `resolveAuthenticatedUserUsing` finds. */
    protected function authenticatedUser($request)
    {
        return method_exists(parent::class, 'resolveAuthenticatedUser') ? parent::resolveAuthenticatedUser($request) : null;
    }

    public function broadcast(array $channels, $event, array $payload = [])
    {
        $socket = Arr::pull($payload, 'socket');
        try {
            $this->channelsOfApplication->publish($this->formatChannels($channels), (string) $event, $payload, $socket === null ? null : (string) $socket);
        } catch (PublishFailed $e) {
            throw new BroadcastException($e->getMessage(), 0, $e);
        }
    }
}
