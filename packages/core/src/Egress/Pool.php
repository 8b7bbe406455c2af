<?php

/**
 * Concurrent calls: up to a maximum at once, and each result as soon as it has arrived.
 *
 *     $pool = new Pool(concurrency: 50);
 *     foreach ($urls as $url) {
 *         $pool->send($url);
 *     }
 *     foreach ($pool as $key => $answer) {
 *         echo $key, ' ', $answer->ok() ? strlen($answer->body()) : $answer->error?->getMessage(), "\n";
 *     }
 *
 * Promises: at most `concurrency` calls run at once; a call that fails stops no other; calls may be added while results are read; a caller that
 * stops reading cancels the running calls. Calls to one origin use few connections, which HTTP/2 shares, with a broker and without one.
 */

declare(strict_types=1);

namespace Hearth\Egress;

/** @implements \IteratorAggregate<int|string, Answer> */
final class Pool implements \IteratorAggregate, \Countable
{
    private const SELECT_SECONDS = 1.0;

    /** Connections to one origin without a broker: each costs TLS, and the loading of all authorities. */
    private const CONNECTIONS = 6;

    /** After this many calls they are sent, while PHP prepares the next ones. */
    private const BATCH = 8;

    private readonly Broker $broker;
    private readonly ?Limit $limit;

    /** @var array<int|string, Call> not yet begun */
    private array $waiting = [];

    /** @var ?\Iterator<int|string, string|Call> further calls, read when there is room */
    private ?\Iterator $source = null;

    /** @var array<int, array{int|string, Transfer, \CurlHandle}> under way, by number of the handle */
    private array $running = [];

    /** @var list<\CurlHandle> */
    private array $idle = [];

    private ?\CurlMultiHandle $multi = null;
    private int $process = 0;
    private int $done = 0;
    private int $total = 0;
    private int $bytes = 0;
    private int $next = 0;

    /** @var list<object> of the process that this one was forked from: to end them would end its connections */
    private static array $inherited = [];

    /**
     * @param int $concurrency how many calls may run at once
     * @param ?\Closure(int, int, int): void $progress gets the numbers of finished calls, of all calls, and of received bytes
     * @param array<int, mixed> $curl options of curl for each call that is only a URL
     * @param ?int $connections the most connections to one origin; null: the broker's limit, or six if calls go directly
     */
    public function __construct(
        ?Broker $broker = null,
        private readonly int $concurrency = 100,
        private readonly ?\Closure $progress = null,
        private readonly array $curl = [],
        private readonly ?int $connections = null,
    ) {
        $concurrency >= 1 || throw new InvalidCall('A pool needs room for one call at least.');
        $this->broker = $broker ?? Broker::fromEnvironment();
        $this->limit = $connections === null ? null : new Limit($connections);
    }

    /** Adds a call; the result comes under the key, which is a number where none is given. */
    public function send(string|Call $call, int|string|null $key = null): int|string
    {
        $key ??= $this->next++;
        isset($this->waiting[$key]) && throw new InvalidCall("There is a call with the key {$key} already.");
        $this->waiting[$key] = $this->call($call);
        $this->total++;
        return $key;
    }

    /**
     * Adds calls that are made one by one, when there is room for them: there may be more than fit into memory.
     *
     * @param iterable<int|string, string|Call> $calls
     */
    public function feed(iterable $calls): void
    {
        $more = new \IteratorIterator(is_array($calls) ? new \ArrayIterator($calls) : $calls);
        $more->rewind();
        if ($this->source === null || !$this->source->valid()) {
            $this->source = $more;
            return;
        }
        $before = $this->source;
        $this->source = (static function () use ($before, $more): \Generator {
            foreach ([$before, $more] as $source) {
                for (; $source->valid(); $source->next()) {
                    yield $source->key() => $source->current();
                }
            }
        })();
    }

    /** Known calls whose results have not been read. */
    public function count(): int
    {
        return count($this->waiting) + count($this->running);
    }

    /** @return \Generator<int|string, Answer> in the order in which they end */
    public function getIterator(): \Generator
    {
        $this->open();
        try {
            while ($this->start()) {
                $active = 0;
                $status = curl_multi_exec($this->multi, $active);
                $status === CURLM_OK || throw new TransferFailed((string) curl_multi_strerror($status));
                $ended = $this->collect();
                $this->reportProgress();
                foreach ($ended as [$key, $answer]) {
                    yield $key => $answer;
                }
                if ($ended === [] && $this->running !== [] && curl_multi_select($this->multi, self::SELECT_SECONDS) === -1) {
                    usleep(1000);
                }
            }
        } finally {
            foreach ($this->running as [, , $handle]) {
                curl_multi_remove_handle($this->multi, $handle);
            }
            $this->running = [];
        }
    }

    /** @return array<int|string, Answer> all results, in the order in which the calls were added */
    public function all(): array
    {
        $keys = array_keys($this->waiting);
        $answers = iterator_to_array($this);
        return array_replace(array_intersect_key(array_flip($keys), $answers), $answers);
    }

    private function call(string|Call $call): Call
    {
        return is_string($call) ? new Call($call, curl: $this->curl) : $call;
    }

    private function open(): void
    {
        $process = (int) getmypid();
        if ($this->process !== $process) {
            if ($this->multi !== null) {
                self::$inherited[] = $this->multi;
                array_push(self::$inherited, ...$this->idle);
                $this->idle = [];
            }
            $this->multi = curl_multi_init();
            curl_multi_setopt($this->multi, CURLMOPT_PIPELINING, CURLPIPE_MULTIPLEX);
            curl_multi_setopt($this->multi, CURLMOPT_MAX_HOST_CONNECTIONS, $this->connections ?? self::CONNECTIONS);
            $this->process = $process;
        }
        $this->running === [] || throw new \LogicException('The results of a pool are read at one place at a time.');
    }

    /** Fills the room there is. False: there is nothing to do any more. */
    private function start(): bool
    {
        while (count($this->running) < $this->concurrency) {
            if ($this->waiting === [] && $this->source?->valid()) {
                $key = $this->source->key();
                $this->send($this->source->current(), is_int($key) ? null : $key);
                $this->source->next();
            }
            $key = array_key_first($this->waiting);
            if ($key === null) {
                break;
            }
            $call = $this->waiting[$key];
            unset($this->waiting[$key]);
            $this->begin($key, new Transfer($call, $this->broker, limit: $this->limit));
            if (count($this->running) % self::BATCH === 0) {
                $active = 0;
                curl_multi_exec($this->multi, $active);
            }
        }
        return $this->running !== [];
    }

    private function begin(int|string $key, Transfer $transfer): void
    {
        $handle = array_pop($this->idle) ?? curl_init();
        $transfer->prepare($handle);
        $this->running[spl_object_id($handle)] = [$key, $transfer, $handle];
        curl_multi_add_handle($this->multi, $handle);
    }

    /** @return list<array{int|string, Answer}> */
    private function collect(): array
    {
        $ended = [];
        while ($message = curl_multi_info_read($this->multi)) {
            $handle = $message['handle'];
            [$key, $transfer] = $this->running[spl_object_id($handle)];
            unset($this->running[spl_object_id($handle)]);
            $over = $transfer->finish($handle, $message['result']);
            curl_multi_remove_handle($this->multi, $handle);
            Handles::clear($handle);
            $this->idle[] = $handle;
            if (!$over) {
                $this->begin($key, $transfer);
                continue;
            }
            $this->done++;
            $this->bytes += $transfer->bytes();
            $ended[] = [$key, $transfer->answer()];
        }
        return $ended;
    }

    private function reportProgress(): void
    {
        if ($this->progress === null) {
            return;
        }
        $bytes = $this->bytes;
        foreach ($this->running as [, $transfer]) {
            $bytes += $transfer->bytes();
        }
        ($this->progress)($this->done, $this->total, $bytes);
    }
}
