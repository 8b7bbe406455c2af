<?php

/**
 * Publishes events to channels: through the server that runs this script, without a call (hearth_publish()), otherwise over the HTTP API.
 * Promises: clients get the same event either way.
 */

declare(strict_types=1);

namespace Hearth\Realtime;

use Hearth\Egress\Call;
use Hearth\Egress\Pool;

final class Channels
{
    /** Channels of one call (Pusher's limit). */
    private const AT_ONCE = 100;

    /**
     * @param ?string $api where the HTTP API is: `http://127.0.0.1:8080`. Null: there is none, events go through the server or not at all
     * @param array<int, mixed> $curl options of curl for its calls
     */
    public function __construct(
        public readonly Application $application,
        private readonly ?string $api = null,
        private readonly array $curl = [],
        private readonly bool $throughServer = true,
    ) {
    }

    /**
     * @param list<string> $channels
     * @param mixed $data a string is sent unchanged, all else as JSON
     * @param ?string $exceptSocket the id of a socket that does not get it
     * @throws PublishFailed
     */
    public function publish(array $channels, string $event, mixed $data, ?string $exceptSocket = null): void
    {
        $text = is_string($data) ? $data : json_encode($data, JSON_THROW_ON_ERROR);
        $plain = [];
        foreach ($channels as $channel) {
            // Each channel has its own secret.
            if (Application::isEncrypted($channel)) {
                $this->send([$channel], $event, $this->application->encrypted($channel, $text), $exceptSocket);
            } else {
                $plain[] = $channel;
            }
        }
        foreach (array_chunk($plain, self::AT_ONCE) as $some) {
            $this->send($some, $event, $text, $exceptSocket);
        }
    }

    /** @param list<string> $channels */
    private function send(array $channels, string $event, string $data, ?string $exceptSocket): void
    {
        if ($this->throughServer && function_exists('hearth_can_publish') && hearth_can_publish()) {
            try {
                hearth_publish($channels, $event, $data, $exceptSocket);
            } catch (\ValueError $e) {
                throw new PublishFailed($e->getMessage(), 0, $e);
            }
            return;
        }
        if ($this->api === null) {
            throw new PublishFailed('There is no server to publish through here and no HTTP API to call: set its host (REVERB_HOST or PUSHER_HOST).');
        }
        $body = json_encode(['name' => $event, 'channels' => $channels, 'data' => $data] + ($exceptSocket === null ? [] : ['socket_id' => $exceptSocket]), JSON_THROW_ON_ERROR);
        $path = "/apps/{$this->application->id}/events";
        $url = rtrim($this->api, '/') . $path . '?' . $this->application->query('POST', $path, $body);
        $pool = new Pool();
        $key = $pool->send(new Call($url, 'POST', ['Content-Type' => 'application/json'], $body, $this->curl + [CURLOPT_TIMEOUT => 10]));
        $answer = $pool->all()[$key];
        if (!$answer->ok()) {
            throw new PublishFailed("{$this->api} has not taken the event: " . ($answer->error?->getMessage() ?? "status {$answer->status}, " . substr($answer->body(), 0, 500)), $answer->status, $answer->error);
        }
    }
}
