<?php

/**
 * One call on its curl handle: through the broker if possible, directly if the broker declines. Promises: the origin gets it at most
 * once.
 */

declare(strict_types=1);

namespace Hearth\Egress;

/** @internal */
final class Transfer
{
    /** Milliseconds that libcurl gives a connection. */
    private const CONNECT_TIMEOUT = 300_000;

    /** CURLE_COULDNT_CONNECT */
    private const NOT_CONNECTED = 7;

    /** @var resource */
    private $sink;

    private ?Listener $listener = null;
    private ?Verdict $verdict = null;
    private ?Timing $timing = null;

    /** @var list<string> the last head, its first line among it */
    private array $head = [];
    private bool $ended = false;
    private int $bytes = 0;

    /** Start position of a body that is a stream. */
    private int $start = 0;
    private bool $through = false;
    private readonly float $begin;
    private ?Answer $answer = null;

    public function __construct(
        private readonly Call $call,
        private readonly Broker $broker,
        private readonly bool $timed = true,
        private readonly ?Limit $limit = null,
    ) {
        $this->sink = fopen('php://temp', 'w+');
        $this->start = is_resource($call->body) ? (int) ftell($call->body) : 0;
        $this->begin = microtime(true);
    }

    /** Bytes of the body that have come. */
    public function bytes(): int
    {
        return $this->bytes;
    }

    public function answer(): Answer
    {
        return $this->answer ?? throw new \LogicException('the transfer has not ended');
    }

    /** Sets a fresh handle to make the call. */
    public function prepare(\CurlHandle $handle): void
    {
        $this->head = [];
        $this->ended = false;
        $options = $this->common();
        $lines = [];
        foreach ($this->call->fields as [$name, $value]) {
            // libcurl's syntax for a field without a value.
            $lines[] = $value === '' ? "{$name};" : "{$name}: {$value}";
        }
        foreach (['Accept', 'Expect', 'Content-Type'] as $name) {
            $this->call->has($name) || $lines[] = "{$name}:";
        }
        $target = $this->answer === null && $this->verdict === null ? Target::of($this->call->url) : null;
        $control = $target === null ? null : $this->control($target);
        $this->through = $control !== null;
        if ($control !== null) {
            $lines[] = Listener::CONTROL . ": {$control}";
            foreach (Listener::trace() as $name => $value) {
                $lines[] = "{$name}: {$value}";
            }
            $options = [
                CURLOPT_URL => Listener::url(),
                CURLOPT_REQUEST_TARGET => $target->absolute(),
                CURLOPT_UNIX_SOCKET_PATH => $this->listener->socket,
                CURLOPT_HTTP_VERSION => CURL_HTTP_VERSION_1_1,
                CURLOPT_PROTOCOLS => CURLPROTO_HTTP,
                CURLOPT_PROXY => '',
                CURLOPT_NOPROXY => '*',
                // A unix socket is of neither family.
                CURLOPT_IPRESOLVE => CURL_IPRESOLVE_WHATEVER,
                CURLOPT_FRESH_CONNECT => true,
                CURLOPT_FORBID_REUSE => true,
            ] + Listener::QUIET + $options;
            if ($target->user !== null) {
                $options += [CURLOPT_USERNAME => $target->user, CURLOPT_PASSWORD => (string) $target->password];
            }
            $this->call->has('Host') || $lines[] = "Host: {$target->authority()}";
        } else {
            $options[CURLOPT_URL] = $this->call->url;
            // A call waits to see whether it can share a connection that is being made.
            $options += [CURLOPT_PIPEWAIT => true];
            if (($share = SharedConnections::get()) !== null && !isset($options[CURLOPT_SHARE])) {
                $options[CURLOPT_SHARE] = $share;
            }
            $spent = (int) (1000 * (microtime(true) - $this->begin));
            if ($this->verdict !== null && $spent > 0) {
                foreach ([CURLOPT_TIMEOUT => 1000, CURLOPT_TIMEOUT_MS => 1] as $option => $unit) {
                    if (!empty($options[$option])) {
                        $left = max(1, $unit * (int) $options[$option] - $spent);
                        unset($options[$option]);
                        $options[CURLOPT_TIMEOUT_MS] = $left;
                    }
                }
            }
        }
        curl_setopt_array($handle, [CURLOPT_HTTPHEADER => $lines] + $options);
    }

    /** The handle has done its work. False: prepare another, the call is to be made again. */
    public function finish(\CurlHandle $handle, int $errno): bool
    {
        $unreachable = $this->through && $errno === self::NOT_CONNECTED && $this->head === [];
        if ($unreachable || ($this->through && $this->verdict?->direct() === true)) {
            $trouble = $unreachable ? 'its socket cannot be connected to' : $this->verdict?->trouble();
            if ($trouble !== null) {
                $this->broker->gone($trouble);
            }
            $this->verdict ??= new Verdict(true, 'unsupported', 0, '');
            return false;
        }
        $info = curl_getinfo($handle);
        $failed = $this->through ? $this->verdict : null;
        $error = match (true) {
            $failed !== null => TransferFailed::of($failed->errno, $failed->message, $this->call->url),
            $errno !== 0 => TransferFailed::of($errno, curl_error($handle) ?: (string) curl_strerror($errno), $this->call->url),
            default => null,
        };
        $head = $failed === null ? $this->head : [];
        $first = explode(' ', array_shift($head) ?? '', 3);
        $fields = [];
        foreach ($head as $line) {
            [$name, $value] = explode(':', $line, 2) + [1 => ''];
            $fields[] = [trim($name), trim($value)];
        }
        rewind($this->sink);
        $info = $this->through ? Timing::amend($info, $this->call->url, $this->timing) : $info;
        $version = $this->through && $this->timing?->protocol === '2' ? '2' : (explode('/', $first[0])[1] ?? '1.1');
        $status = (int) ($first[1] ?? 0);
        $this->answer = new Answer($this->call, $status, $first[2] ?? '', $version, $fields, $this->sink, $this->timing, $info, $error);
        return true;
    }

    /** The value of Hearth-Control; null: make the call directly. */
    private function control(Target $target): ?string
    {
        if (is_resource($this->call->body) && !stream_get_meta_data($this->call->body)['seekable']) {
            return null;
        }
        foreach ($this->call->fields as [$name, $value]) {
            $name = strtolower($name);
            $other = $name === 'host' && strcasecmp(trim($value), $target->authority()) !== 0;
            if ($other || $name === 'proxy-authorization' || $name === 'upgrade') {
                return null;
            }
        }
        $curl = $this->call->curl;
        $proxy = Proxies::for($target->scheme, $target->host, $curl[CURLOPT_PROXY] ?? null, $curl[CURLOPT_NOPROXY] ?? null);
        unset($curl[CURLOPT_PROXY], $curl[CURLOPT_NOPROXY]);
        if ($proxy === Proxies::UNCERTAIN) {
            return null;
        }
        $control = new Control(proxy: $proxy, connectTimeout: self::CONNECT_TIMEOUT, timing: $this->timed);
        $control = $this->limit?->on($control) ?? $control;
        if ($target->scheme === 'https') {
            $authorities = CurlOptions::authoritiesOfPhp();
            $curl += $authorities === null || ($curl[CURLOPT_SSL_VERIFYPEER] ?? true) == false ? [] : [CURLOPT_CAINFO => $authorities];
        } else {
            $tls = [CURLOPT_CAINFO, CURLOPT_CAPATH, CURLOPT_SSLCERT, CURLOPT_SSLKEY, CURLOPT_SSL_VERIFYPEER, CURLOPT_SSL_VERIFYHOST];
            $curl = array_diff_key($curl, array_flip($tls));
        }
        $control = CurlOptions::read($curl, $control, $target->place());
        $this->listener = $control === null ? null : $this->broker->listener();
        return $this->listener?->control($control);
    }

    /** @return array<int, mixed> what both ways have in common */
    private function common(): array
    {
        $options = [
            CURLOPT_HEADERFUNCTION => $this->line(...),
            CURLOPT_WRITEFUNCTION => $this->write(...),
            CURLOPT_FOLLOWLOCATION => false,
            CURLOPT_HTTPAUTH => CURLAUTH_BASIC,
        ];
        $body = $this->call->body;
        if ($this->call->method === 'HEAD') {
            $options[CURLOPT_NOBODY] = true;
        } elseif (is_resource($body)) {
            fseek($body, $this->start);
            $size = fstat($body)['size'] ?? -1;
            $read = static fn (\CurlHandle $handle, mixed $file, int $length): string => (string) fread($body, $length);
            $options += [CURLOPT_UPLOAD => true, CURLOPT_READFUNCTION => $read];
            $options += stream_get_meta_data($body)['seekable'] && $size >= 0 ? [CURLOPT_INFILESIZE => $size - $this->start] : [];
        } elseif ($body !== '' || in_array($this->call->method, ['POST', 'PUT', 'PATCH'], true)) {
            $options[CURLOPT_POSTFIELDS] = $body;
        }
        if ($this->call->method !== 'HEAD') {
            $options[CURLOPT_CUSTOMREQUEST] = $this->call->method;
        }
        return $options + $this->call->curl;
    }

    private function line(\CurlHandle $handle, string $line): int
    {
        $text = rtrim($line, "\r\n");
        if ($text === '') {
            $this->ended = true;
        } elseif ($this->ended && strncmp($text, 'HTTP/', 5) === 0) {
            // The head before was an interim one.
            $this->head = [$text];
            $this->ended = false;
        } elseif (!$this->ended) {
            $this->field($text);
        }
        return strlen($line);
    }

    private function field(string $text): void
    {
        if (!$this->through || strncasecmp($text, 'Hearth-', 7) !== 0) {
            $this->head[] = $text;
            return;
        }
        $this->verdict ??= Verdict::readLine($text);
        if (strncasecmp($text, Timing::FIELD . ':', strlen(Timing::FIELD) + 1) === 0) {
            $this->timing = Timing::read(trim(substr($text, strlen(Timing::FIELD) + 1)));
        }
    }

    private function write(\CurlHandle $handle, string $piece): int
    {
        if ($this->through && $this->verdict !== null) {
            return strlen($piece);
        }
        $written = (int) fwrite($this->sink, $piece);
        $this->bytes += $written;
        return $written;
    }
}
