<?php

/**
 * Decorates Symfony's transport: calls go through the egress broker if possible, and directly otherwise.
 *
 * Promises
 * - A call is sent at most once: directly only if nothing of it has reached the origin.
 * - Options, responses, streams and exceptions are those of CurlHttpClient; redirects are followed here in the same way.
 */

declare(strict_types=1);

namespace Hearth\Symfony;

use Hearth\Egress\Broker;
use Hearth\Egress\Listener;
use Hearth\Egress\Limit;
use Psr\Log\LoggerAwareInterface;
use Psr\Log\LoggerInterface;
use Symfony\Component\HttpClient\CurlHttpClient;
use Symfony\Component\HttpClient\HttpClientTrait;
use Symfony\Component\HttpClient\Response\AsyncContext;
use Symfony\Component\HttpClient\Response\AsyncResponse;
use Symfony\Component\HttpClient\Response\ResponseStream;
use Symfony\Contracts\HttpClient\ChunkInterface;
use Symfony\Contracts\HttpClient\HttpClientInterface;
use Symfony\Contracts\HttpClient\ResponseInterface;
use Symfony\Contracts\HttpClient\ResponseStreamInterface;
use Symfony\Contracts\Service\ResetInterface;

final class EgressHttpClient implements HttpClientInterface, LoggerAwareInterface, ResetInterface
{
    use HttpClientTrait;

    /** After this many requests they are sent, while PHP prepares the next ones. CurlHttpClient sends them when the first answer is asked for. */
    private const BATCH = 8;

    /** @var array<string, mixed> */
    private array $defaultOptions;

    private int $begun = 0;

    private readonly Attempts $attempts;
    private readonly EgressStrategy $strategy;

    /**
     * @param array<string, mixed> $defaultOptions default options of the inner client, which are applied here instead
     * @param list<string> $directHosts names that are never called through the broker; `*.example.com` for all names below it
     * @param int $maxHostConnections maximum number of connections to one origin, as configured for the inner client; 0: no
     * limit
     */
    public function __construct(
        private readonly HttpClientInterface $client,
        Broker $broker,
        array $defaultOptions = [],
        array $directHosts = [],
        int $maxHostConnections = 6
    ) {
        $limit = $maxHostConnections > 0 ? new Limit($maxHostConnections) : null;
        // Only CurlHttpClient can connect to a Unix socket.
        $planner = new Planner($client instanceof CurlHttpClient ? $broker : new Broker(null), $directHosts, $limit);
        $this->attempts = new Attempts($planner);
        $this->strategy = new EgressStrategy($broker, $this->attempts);
        $this->defaultOptions = self::mergeDefaultOptions($defaultOptions, self::OPTIONS_DEFAULTS + ['auth_ntlm' => null], true);
    }

    /**
     * Factory for the container.
     *
     * @param array<string, mixed> $defaultOptions
     * @param list<string> $directHosts
     */
    public static function create(
        HttpClientInterface $client,
        ?string $socket,
        array $defaultOptions,
        array $directHosts,
        ?LoggerInterface $logger = null,
        int $maxHostConnections = 6
    ): self {
        $notice = $logger === null ? null : static function (string $message) use ($logger): void {
            $logger->notice($message);
        };
        $broker = $socket === null || $socket === '' ? Broker::fromEnvironment($notice) : new Broker($socket, $notice);
        return new self($client, $broker, $defaultOptions, $directHosts, $maxHostConnections);
    }

    public function request(string $method, string $url, array $options = []): ResponseInterface
    {
        [$parts, $options] = self::prepareRequest($method, $url, $options, $this->defaultOptions, true);
        unset($options['query'], $options['base_uri']);
        $foreign = static fn (string $line): bool => !Listener::reserves(explode(':', $line, 2)[0]);
        $options['headers'] = array_values(array_filter($options['headers'], $foreign));
        $call = new EgressCall($method, implode('', $parts), $options);
        [$url, $options] = $this->attempts->prepare($call, $options);
        $strategy = $call->listenerUrl === null
            ? null
            : fn (ChunkInterface $chunk, AsyncContext $context): \Generator => $this->strategy->receive($chunk, $context, $call);
        $response = new AsyncResponse($this->client, $method, $url, $options, $strategy);
        if ($call->listenerUrl !== null) {
            Quiet::make($response);
            if (++$this->begun % self::BATCH === 0) {
                // Runs what is there, and waits for nothing.
                $this->client->stream([]);
            }
        }
        return new EgressResponse($response, $call);
    }

    public function stream($responses, ?float $timeout = null): ResponseStreamInterface
    {
        return new ResponseStream(EgressResponse::stream($responses instanceof EgressResponse ? [$responses] : $responses, $timeout));
    }

    public function withOptions(array $options): static
    {
        $clone = clone $this;
        $clone->defaultOptions = self::mergeDefaultOptions($options, $this->defaultOptions);
        return $clone;
    }

    public function setLogger(LoggerInterface $logger): void
    {
        if ($this->client instanceof LoggerAwareInterface) {
            $this->client->setLogger($logger);
        }
    }

    public function reset(): void
    {
        if ($this->client instanceof ResetInterface) {
            $this->client->reset();
        }
    }
}
