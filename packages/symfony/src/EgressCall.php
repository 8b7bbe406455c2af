<?php

/** One call and the redirects it follows: its current URL, its way, and the broker's report. */

declare(strict_types=1);

namespace Hearth\Symfony;

use Hearth\Egress\Listener;
use Hearth\Egress\Target;
use Hearth\Egress\Timing;

/** @internal */
final class EgressCall
{
    /** The URL that the inner client gets while the call goes through the broker; null: the call is made directly. */
    public ?string $listenerUrl = null;

    /** The final response head, or the broker's error, has arrived. */
    public bool $answered = false;

    public ?Timing $timing = null;

    /** The broker reported a failure: the status is not the origin's. */
    public bool $failed = false;

    public int $redirects = 0;

    /** Target of a redirect that is not followed. */
    public ?string $redirectUrl = null;

    public readonly RedirectCookies $cookies;

    /** Scheme, host and port of the first URL: only there header fields with secrets go. */
    private readonly string $first;

    /** @var array<string, mixed> options of the current attempt, without those for the first origin only */
    public array $attempt = [];

    /** @param array<string, mixed> $options prepared */
    public function __construct(public string $method, public string $url, public array $options)
    {
        $this->cookies = new RedirectCookies();
        $this->first = self::originOf($url);
    }

    /** Returns whether the current URL has scheme, host and port of the first. */
    public function isAtFirstOrigin(): bool
    {
        return self::originOf($this->url) === $this->first;
    }

    /** Also of URLs that {@see \Hearth\Egress\Target} refuses: the call to them is made directly. */
    private static function originOf(string $url): string
    {
        $parts = (array) parse_url($url) + ['scheme' => '', 'host' => ''];
        $scheme = strtolower($parts['scheme']);
        $port = $parts['port'] ?? ($scheme === 'https' ? 443 : 80);
        return "{$scheme}://" . strtolower($parts['host']) . ":{$port}";
    }

    /** @param array<string, mixed> $options of the attempt that starts now */
    public function begin(array $options): void
    {
        $this->attempt = $options;
        $this->listenerUrl = null;
        $this->answered = false;
        $this->timing = null;
    }

    public function route(Target $target): void
    {
        $this->listenerUrl = Listener::url($target->path);
    }

    /** A message of the inner client, with the origin's URL in place of the broker's. */
    public function translate(string $message): string
    {
        return $this->listenerUrl === null ? $message : str_replace("\"{$this->listenerUrl}\"", "\"{$this->url}\"", $message);
    }

    /**
     * Returns the information of the inner client, with the origin in place of the broker.
     *
     * @param array<string, mixed> $info
     * @return array<string, mixed>
     */
    public function amend(array $info): array
    {
        if ($this->listenerUrl !== null) {
            $info = Timing::amend($info, $this->url, $this->timing);
            if ($this->failed) {
                $info['http_code'] = 0;
            }
            // Retry strategies take an empty address as a sign that nothing was sent.
            if ($info['primary_ip'] === '' && ($info['request_size'] ?? 0) > 0 && ($info['error'] ?? null) !== null) {
                $info['primary_ip'] = 'unknown';
            }
        }
        $info = self::withoutBroker($info);
        if (isset($info['previous_info'])) {
            $info['previous_info'] = array_map(self::withoutBroker(...), $info['previous_info']);
        }
        $info['url'] = $this->url;
        $info['http_method'] = $this->method;
        if ($this->redirects > 0) {
            $info['redirect_count'] = $this->redirects;
        }
        $info['redirect_url'] = $this->redirectUrl ?? ($this->listenerUrl === null ? $info['redirect_url'] ?? null : null);
        return $info;
    }

    /**
     * @param array<string, mixed> $info
     * @return array<string, mixed>
     */
    private static function withoutBroker(array $info): array
    {
        $info['debug'] = preg_replace('/token="[^"]*"/', 'token="***"', (string) ($info['debug'] ?? ''));
        $info['response_headers'] = array_values(preg_grep('/^hearth-/i', $info['response_headers'] ?? [], PREG_GREP_INVERT));
        return $info;
    }
}
