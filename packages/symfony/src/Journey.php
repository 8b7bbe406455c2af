<?php

/** One call and the redirects it follows: where it is, how it goes there, and what is known of the way. */

declare(strict_types=1);

namespace Hearth\Symfony;

use Hearth\Egress\Door;
use Hearth\Egress\Target;
use Hearth\Egress\Timing;

/** @internal */
final class Journey
{
    /** The URL that the client beneath is given while the call goes through the broker; null: it goes directly. */
    public ?string $doorUrl = null;

    /** The final head has come, or what stands for it. */
    public bool $answered = false;

    public ?Timing $timing = null;

    /** The broker has said that it is over: the status is none of the origin's. */
    public bool $failed = false;

    public int $redirects = 0;

    /** Where the answer would send the caller, when that is not followed. */
    public ?string $redirectUrl = null;

    public readonly RedirectCookies $cookies;

    /** Who was called first: only there go the fields that hold secrets. */
    public readonly string $host;

    /** @var array<string, mixed> the options of the call that is under way: without what is for the first host only */
    public array $leg = [];

    /** @param array<string, mixed> $options prepared */
    public function __construct(public string $method, public string $url, public array $options)
    {
        $this->cookies = new RedirectCookies();
        $this->host = (string) parse_url($url, PHP_URL_HOST);
    }

    public function enter(Target $target): void
    {
        $this->doorUrl = Door::url($target->path);
    }

    /** A message of the client beneath, which knows of another URL. */
    public function say(string $message): string
    {
        return $this->doorUrl === null ? $message : str_replace("\"{$this->doorUrl}\"", "\"{$this->url}\"", $message);
    }

    /**
     * What the client beneath knows, with the origin in place of the broker.
     *
     * @param array<string, mixed> $info
     * @return array<string, mixed>
     */
    public function amend(array $info): array
    {
        if ($this->doorUrl !== null) {
            $info = Timing::amend($info, $this->url, $this->timing);
            if ($this->failed) {
                $info['http_code'] = 0;
            }
            // Who decides about repeating a call takes an empty one for: nothing has been sent.
            if ($info['primary_ip'] === '' && ($info['request_size'] ?? 0) > 0 && ($info['error'] ?? null) !== null) {
                $info['primary_ip'] = 'unknown';
            }
        }
        $info = self::withoutOurs($info);
        if (isset($info['previous_info'])) {
            $info['previous_info'] = array_map(self::withoutOurs(...), $info['previous_info']);
        }
        $info['url'] = $this->url;
        $info['http_method'] = $this->method;
        if ($this->redirects > 0) {
            $info['redirect_count'] = $this->redirects;
        }
        $info['redirect_url'] = $this->redirectUrl ?? ($this->doorUrl === null ? $info['redirect_url'] ?? null : null);
        return $info;
    }

    /**
     * @param array<string, mixed> $info
     * @return array<string, mixed>
     */
    private static function withoutOurs(array $info): array
    {
        $info['debug'] = preg_replace('/token="[^"]*"/', 'token="***"', (string) ($info['debug'] ?? ''));
        $info['response_headers'] = array_values(preg_grep('/^hearth-/i', $info['response_headers'] ?? [], PREG_GREP_INVERT));
        return $info;
    }
}
