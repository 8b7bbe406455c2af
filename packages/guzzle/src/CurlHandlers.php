<?php

/**
 * Guzzle's curl handlers of this process. Promises: handles and their connections are kept from call to call; a forked process creates its
 * own, and leaves those of its parent untouched.
 */

declare(strict_types=1);

namespace Hearth\Guzzle;

use GuzzleHttp\Handler\CurlFactory;
use GuzzleHttp\Handler\CurlHandler;
use GuzzleHttp\Handler\CurlMultiHandler;
use GuzzleHttp\Promise\PromiseInterface;
use Hearth\Egress\SharedConnections;
use Psr\Http\Message\RequestInterface;

/** @internal */
final class CurlHandlers
{
    /** @var list<object> handlers of the parent process: destroying them would close its connections */
    private static array $inherited = [];

    private CurlHandler $single;
    private CurlMultiHandler $many;
    private int $process = 0;

    /** @param int $maxHandles how many idle curl handles are kept, each with its connections */
    public function __construct(private readonly int $maxHandles)
    {
    }

    /** @param array<string, mixed> $options */
    public function __invoke(RequestInterface $request, array $options): PromiseInterface
    {
        $this->prepare();
        return empty($options['synchronous']) ? ($this->many)($request, $options) : ($this->single)($request, $options);
    }

    /** Creates the handlers at the first call, and again after a fork. */
    private function prepare(): void
    {
        $process = (int) getmypid();
        if ($this->process === $process) {
            return;
        }
        if ($this->process !== 0) {
            self::$inherited[] = $this->single;
            self::$inherited[] = $this->many;
        }
        $share = SharedConnections::get();
        // Two kinds: a handle that was part of a curl_multi loses its own connections.
        $this->single = new CurlHandler(['handle_factory' => new Factory(new CurlFactory($this->maxHandles), $share)]);
        $this->many = new CurlMultiHandler(['handle_factory' => new Factory(new CurlFactory($this->maxHandles), $share)]);
        $this->process = $process;
    }
}
