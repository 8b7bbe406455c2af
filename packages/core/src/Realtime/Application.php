<?php

/**
 * An application of channels in Pusher's protocol: the signatures of its servers. Promises: the same signatures as
 * pusher/pusher-php-server, so clients and other servers see no difference.
 */

declare(strict_types=1);

namespace Hearth\Realtime;

final class Application
{
    /** @param ?string $masterKey 32 bytes, for channels whose messages the server cannot read (private-encrypted-) */
    public function __construct(
        public readonly string $id,
        public readonly string $key,
        #[\SensitiveParameter] private readonly string $secret,
        #[\SensitiveParameter] private readonly ?string $masterKey = null,
    ) {
        if ($masterKey !== null && strlen($masterKey) !== 32) {
            throw new \InvalidArgumentException('The master key of encrypted channels has 32 bytes.');
        }
    }

    /**
     * Returns the answer to a client that requests a subscription to a private, presence or encrypted channel.
     *
     * @param ?array<string, mixed> $member user_id and user_info, on a presence channel
     * @return array<string, string>
     * @throws \InvalidArgumentException for an invalid name or id
     */
    public function subscription(string $channel, string $socket, ?array $member = null): array
    {
        self::checkSocket($socket);
        if (preg_match('/\A[-A-Za-z0-9_=@,.;]+\z/', $channel) !== 1) {
            throw new \InvalidArgumentException("{$channel} is no name of a channel.");
        }
        $data = $member === null ? null : json_encode($member, JSON_THROW_ON_ERROR);
        $signed = $data === null ? "{$socket}:{$channel}" : "{$socket}:{$channel}:{$data}";
        $answer = ['auth' => $this->key . ':' . $this->sign($signed)];
        if ($data !== null) {
            $answer['channel_data'] = $data;
        }
        if (self::isEncrypted($channel)) {
            $answer['shared_secret'] = base64_encode($this->sharedSecret($channel));
        }
        return $answer;
    }

    /**
     * The answer to a client that signs its user in.
     *
     * @param array<string, mixed> $user with a non-empty string `id`
     * @return array{auth: string, user_data: string}
     * @throws \InvalidArgumentException for an id that is none
     */
    public function signIn(string $socket, array $user): array
    {
        self::checkSocket($socket);
        $data = json_encode($user, JSON_THROW_ON_ERROR);
        return ['auth' => $this->key . ':' . $this->sign("{$socket}::user::{$data}"), 'user_data' => $data];
    }

    /** The query of a call of the HTTP API. */
    public function query(string $method, string $path, string $body, ?int $now = null): string
    {
        $parameters = ['auth_key' => $this->key, 'auth_timestamp' => (string) ($now ?? time()), 'auth_version' => '1.0'];
        if ($body !== '') {
            $parameters['body_md5'] = md5($body);
        }
        $query = implode('&', array_map(static fn (string $name, string $value): string => "{$name}={$value}", array_keys($parameters), $parameters));
        return $query . '&auth_signature=' . $this->sign("{$method}\n{$path}\n{$query}");
    }

    /** Returns whether a webhook's body is signed by this application: `X-Pusher-Key` and `X-Pusher-Signature`. */
    public function hasSigned(string $body, string $key, string $signature): bool
    {
        return hash_equals($this->key, $key) && hash_equals($this->sign($body), $signature);
    }

    /** Encrypts the data of an event on an encrypted channel. */
    public function encrypted(string $channel, string $data): string
    {
        $nonce = random_bytes(24);
        return json_encode([
            'nonce' => base64_encode($nonce),
            'ciphertext' => base64_encode(sodium_crypto_secretbox($data, $nonce, $this->sharedSecret($channel))),
        ], JSON_THROW_ON_ERROR);
    }

    public static function isEncrypted(string $channel): bool
    {
        return str_starts_with($channel, 'private-encrypted-');
    }

    /** The client sends its socket id. With other characters in it, the signed text could mean another channel's
     * subscription, or a call of the HTTP API. */
    private static function checkSocket(string $socket): void
    {
        if (preg_match('/\A\d+\.\d+\z/', $socket) !== 1) {
            throw new \InvalidArgumentException("{$socket} is no id of a socket.");
        }
    }

    private function sharedSecret(string $channel): string
    {
        if ($this->masterKey === null) {
            throw new \LogicException("{$channel} is encrypted, and the application has no master key.");
        }
        return hash('sha256', $channel . $this->masterKey, true);
    }

    private function sign(string $text): string
    {
        return hash_hmac('sha256', $text, $this->secret);
    }
}
