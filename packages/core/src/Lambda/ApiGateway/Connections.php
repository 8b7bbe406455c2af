<?php

/**
 * Speaks to the clients of a WebSocket API: API Gateway's @connections calls, signed with the function's own credentials.
 *
 * The function's role needs `execute-api:ManageConnections`. Calls go through Hearth's egress broker where there is one, so its connection to API Gateway
 * stays open from one invocation to the next.
 */

declare(strict_types=1);

namespace Hearth\Lambda\ApiGateway;

use Hearth\Egress\Call;
use Hearth\Egress\Pool;

final class Connections
{
    /**
     * @param string $endpoint `https://{domain}/{stage}`
     * @param array<int, mixed> $curl options of curl for its calls
     */
    public function __construct(
        private readonly string $endpoint,
        private readonly Signer $signer,
        private readonly array $curl = [],
    ) {
    }

    /** Connections of the API that sent the event, with the function's own credentials. */
    public static function of(WebsocketEvent $event): self
    {
        $isAws = str_contains($event->getDomainName(), '.execute-api.');
        // A custom domain is mapped to one stage.
        $stage = $isAws ? '/' . $event->getStage() : '';
        return new self("https://{$event->getDomainName()}{$stage}", Signer::fromEnvironment($event->getRegion(), 'execute-api'));
    }

    /**
     * Connections of the API whose event an HTTP application handles, by its `requestContext`.
     *
     * @param array<string, mixed> $context
     * @param array<int, mixed> $curl
     */
    public static function inContext(array $context, array $curl = []): self
    {
        $domain = (string) ($context['domainName'] ?? '');
        $parts = explode('.', $domain);
        $isAws = ($parts[1] ?? '') === 'execute-api';
        $region = $isAws ? $parts[2] : (string) getenv('AWS_REGION');
        $stage = $isAws ? '/' . ($context['stage'] ?? '') : '';
        return new self("https://{$domain}{$stage}", Signer::fromEnvironment($region, 'execute-api'), $curl);
    }

    /** @return bool false: the client is gone */
    public function send(string $connectionId, string $message): bool
    {
        return $this->call('POST', $connectionId, $message);
    }

    /** @return bool false: the client was gone already */
    public function close(string $connectionId): bool
    {
        return $this->call('DELETE', $connectionId, '');
    }

    private function call(string $method, string $connectionId, string $body): bool
    {
        // Ids end with `=`.
        $url = rtrim($this->endpoint, '/') . '/%40connections/' . rawurlencode($connectionId);
        $headers = $this->signer->sign($method, $url, $body, $body === '' ? [] : ['content-type' => 'application/octet-stream']);
        $pool = new Pool();
        $key = $pool->send(new Call($url, $method, $headers, $body, $this->curl + [CURLOPT_TIMEOUT => 10]));
        $answer = $pool->all()[$key];
        if (!$answer->ok() && $answer->status !== 410) {
            $why = $answer->error?->getMessage() ?? "status {$answer->status}, " . substr($answer->body(), 0, 500);
            throw new ConnectionsFailed("API Gateway has not taken the call for the connection {$connectionId}: {$why}", $answer->status, $answer->error);
        }
        return $answer->status !== 410;
    }
}
