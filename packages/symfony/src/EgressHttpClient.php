<?php

/**
 * Symfony's transport, whose calls go through the egress broker where they may, directly where they may not or where the broker declines.
 *
 * Promises
 * - A call goes out at most once: directly only when nothing of it has reached the origin.
 * - Options, responses, streams and exceptions are those of CurlHttpClient; redirects are followed here as it follows them.
 */

declare(strict_types=1);

namespace Hearth\Symfony;

use Hearth\Egress\Broker;
use Hearth\Egress\Door;
use Hearth\Egress\Limit;
use Hearth\Egress\Target;
use Hearth\Egress\Timing;
use Hearth\Egress\Verdict;
use Psr\Log\LoggerAwareInterface;
use Psr\Log\LoggerInterface;
use Symfony\Component\HttpClient\Chunk\ErrorChunk;
use Symfony\Component\HttpClient\CurlHttpClient;
use Symfony\Component\HttpClient\Exception\InvalidArgumentException;
use Symfony\Component\HttpClient\Exception\TransportException;
use Symfony\Component\HttpClient\HttpClientTrait;
use Symfony\Component\HttpClient\Response\AsyncContext;
use Symfony\Component\HttpClient\Response\AsyncResponse;
use Symfony\Component\HttpClient\Response\ResponseStream;
use Symfony\Contracts\HttpClient\ChunkInterface;
use Symfony\Contracts\HttpClient\Exception\TransportExceptionInterface;
use Symfony\Contracts\HttpClient\HttpClientInterface;
use Symfony\Contracts\HttpClient\ResponseInterface;
use Symfony\Contracts\HttpClient\ResponseStreamInterface;
use Symfony\Contracts\Service\ResetInterface;

final class EgressHttpClient implements HttpClientInterface, LoggerAwareInterface, ResetInterface
{
    use HttpClientTrait;

    /** @var array<string, mixed> */
    private array $defaultOptions;

    private readonly Planner $planner;

    /**
     * @param array<string, mixed> $defaultOptions what the client beneath was given as its default options, and no more knows for itself
     * @param list<string> $directHosts names that are never called through the broker; `*.example.com` for all below one
     * @param int $maxHostConnections what the client beneath was given: the most connections to one origin; 0: no limit
     */
    public function __construct(
        private readonly HttpClientInterface $client,
        private readonly Broker $broker,
        array $defaultOptions = [],
        array $directHosts = [],
        int $maxHostConnections = 6
    ) {
        $limit = $maxHostConnections > 0 ? new Limit($maxHostConnections) : null;
        // Only it has a way to a unix socket.
        $this->planner = new Planner($client instanceof CurlHttpClient ? $broker : new Broker(null), $directHosts, $limit);
        $this->defaultOptions = self::mergeDefaultOptions($defaultOptions, self::OPTIONS_DEFAULTS + ['auth_ntlm' => null], true);
    }

    /**
     * For the container.
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
        $foreign = static fn (string $line): bool => !Door::reserves(explode(':', $line, 2)[0]);
        $options['headers'] = array_values(array_filter($options['headers'], $foreign));
        $journey = new Journey($method, implode('', $parts), $options);
        [$url, $through] = $this->leg($journey, $options);
        if ($journey->doorUrl === null) {
            return new EgressResponse(new AsyncResponse($this->client, $method, $url, $options), $journey);
        }
        $passthru = fn (ChunkInterface $chunk, AsyncContext $context): \Generator => $this->receive($chunk, $context, $journey);
        return new EgressResponse(new AsyncResponse($this->client, $method, $url, $through, $passthru), $journey);
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

    /**
     * URL and options for the client beneath, to where the journey is now.
     *
     * @param array<string, mixed> $options of the call there
     * @return array{string, array<string, mixed>}
     */
    private function leg(Journey $journey, array $options): array
    {
        $journey->leg = $options;
        $journey->doorUrl = null;
        $journey->answered = false;
        $journey->timing = null;
        $target = Target::of($journey->url);
        $proxy = self::getProxyUrl($options['proxy'] ?? null, self::parseUrl($journey->url));
        $plan = $target === null ? null : $this->planner->plan($target, $options, $proxy);
        if ($plan === null) {
            return [$journey->url, $options];
        }
        [$door, $control] = $plan;
        $journey->enter($target);
        if (preg_grep('/^host:/i', $options['headers']) === []) {
            $options['headers'][] = "Host: {$target->authority()}";
        }
        $options['headers'][] = Door::ORIGIN . ": {$target->origin()}";
        $options['headers'][] = Door::CONTROL . ": {$control}";
        foreach (Door::trace() as $name => $value) {
            $options['headers'][] = "{$name}: {$value}";
        }
        $ours = ['bindto' => $door->socket, 'proxy' => '', 'no_proxy' => '*', 'http_version' => '1.1'];
        $ours += ['max_redirects' => 0, 'resolve' => []];
        // A unix socket is of neither family.
        unset($options['extra']['curl'][CURLOPT_IPRESOLVE]);
        if (is_callable($progress = $options['on_progress'] ?? null)) {
            $ours['on_progress'] = static function (int $now, int $size, array $info) use ($progress, $journey): void {
                $progress($now, $size, $journey->amend($info));
            };
        }
        return [$journey->doorUrl, $ours + $options];
    }

    private function receive(ChunkInterface $chunk, AsyncContext $context, Journey $journey): \Generator
    {
        if ($chunk->getError() !== null) {
            yield from $this->fail($chunk, $context, $journey);
            return;
        }
        if ($context->getInfo('canceled') || !$chunk->isFirst()) {
            yield $chunk;
            return;
        }
        $journey->answered = true;
        $headers = $context->getHeaders();
        if ($journey->doorUrl !== null) {
            $verdict = $this->verdict($headers);
            if ($verdict !== null) {
                $this->judge($verdict, $context, $journey);
                return;
            }
            $journey->timing = Timing::read($headers[strtolower(Timing::FIELD)][0] ?? '');
        }
        if (!$this->redirect($context, $headers, $journey)) {
            yield $chunk;
        }
    }

    /** @param array<string, list<string>> $headers */
    private function verdict(array $headers): ?Verdict
    {
        foreach ([Verdict::DECLINED, Verdict::FAILED] as $name) {
            if (isset($headers[strtolower($name)][0])) {
                return Verdict::read($name, $headers[strtolower($name)][0]);
            }
        }
        return null;
    }

    private function judge(Verdict $verdict, AsyncContext $context, Journey $journey): void
    {
        if ($verdict->trouble() !== null) {
            $this->broker->gone($verdict->trouble());
        }
        if (!$verdict->direct()) {
            $journey->failed = true;
            throw new TransportException(sprintf('%s for "%s".', ucfirst($verdict->message), $journey->url));
        }
        $this->direct($context, $journey);
    }

    private function direct(AsyncContext $context, Journey $journey): void
    {
        $context->getResponse()->cancel();
        $journey->doorUrl = null;
        $journey->answered = false;
        if (is_resource($body = $journey->leg['body'] ?? '')) {
            rewind($body);
        }
        $context->replaceRequest($journey->method, $journey->url, ['max_redirects' => 0] + $journey->leg);
    }

    private function fail(ChunkInterface $chunk, AsyncContext $context, Journey $journey): \Generator
    {
        if ($journey->doorUrl === null) {
            yield $chunk;
            return;
        }
        $message = $journey->say((string) $chunk->getError());
        try {
            // Also tells the chunk that its error is in good hands.
            if ($chunk->isTimeout()) {
                yield new ErrorChunk($chunk->getOffset(), $message);
                return;
            }
        } catch (TransportExceptionInterface $e) {
            // As it says it is no timeout.
        }
        // The request had not begun to go out: it was the broker's socket that was not there.
        if (!$journey->answered && !$context->getInfo('canceled') && (int) $context->getInfo('request_size') === 0) {
            $this->broker->gone('its socket cannot be connected to');
            $this->direct($context, $journey);
            return;
        }
        yield new ErrorChunk($chunk->getOffset(), new TransportException($message, 0, $e ?? null));
    }

    /**
     * As CurlHttpClient::createRedirectResolver() and CurlResponse::parseHeaderLine() have it.
     *
     * @param array<string, list<string>> $headers
     */
    private function redirect(AsyncContext $context, array $headers, Journey $journey): bool
    {
        $status = $context->getStatusCode();
        $location = $headers['location'][0] ?? null;
        if ($status < 300 || $status >= 400 || $location === null) {
            return false;
        }
        try {
            $next = implode('', self::resolveUrl(self::parseUrl($location), self::parseUrl($journey->url)));
        } catch (InvalidArgumentException) {
            return false;
        }
        if ($journey->redirects >= ($journey->options['max_redirects'] ?? 0)) {
            $journey->redirectUrl = $next;
            return false;
        }
        $journey->cookies->receive($journey->url, $headers['set-cookie'] ?? []);
        $drop = ['host'];
        if ($status === 303 || ($journey->method === 'POST' && in_array($status, [301, 302], true))) {
            $journey->method = $journey->method === 'HEAD' ? 'HEAD' : 'GET';
            $journey->options['body'] = '';
            array_push($drop, 'content-length', 'content-type', 'transfer-encoding');
        }
        $kept = $journey->options['headers'];
        $stays = static fn (string $line): bool => !in_array(strtolower(explode(':', $line, 2)[0]), $drop, true);
        $kept = array_values(array_filter($kept, $stays));
        $journey->options['headers'] = $kept;
        $journey->url = $next;
        ++$journey->redirects;
        $context->getResponse()->cancel();

        // What is secret is for the host that was called first; what a redirect has set goes where it says.
        $options = $journey->options;
        if (strcasecmp((string) parse_url($next, PHP_URL_HOST), $journey->host) !== 0) {
            $options['headers'] = array_values(preg_grep('/^(authorization|cookie):/i', $kept, PREG_GREP_INVERT));
        }
        if (null !== $cookies = $journey->cookies->for($next)) {
            $options['headers'][] = "Cookie: {$cookies}";
        }
        if (is_resource($body = $options['body'] ?? '')) {
            rewind($body);
        }
        [$url, $options] = $this->leg($journey, $options);
        $context->replaceRequest($journey->method, $url, ['max_redirects' => 0] + $options);
        return true;
    }
}
