<?php

/** Why the broker returned no answer of the origin. Declined: nothing was sent, so make the call directly. Failed: the call is not
 * repeated. */

declare(strict_types=1);

namespace Hearth\Egress;

final class Verdict
{
    public const DECLINED = 'Hearth-Declined';
    public const FAILED = 'Hearth-Failed';

    /** The reasons for which there was an attempt to connect, which has used up time. */
    private const CONNECTING = ['connect', 'tls', 'resolve', 'proxy'];

    /** CURLE_OPERATION_TIMEDOUT */
    private const TIMED_OUT = 28;

    /**
     * @param string $reason a word of docs/internals/egress.md
     * @param int $errno the libcurl error that fits, 0: none
     */
    public function __construct(
        public readonly bool $declined,
        public readonly string $reason,
        public readonly int $errno,
        public readonly string $message,
    ) {
    }

    /** Parses a field of an answer; null: it is another field. */
    public static function read(string $name, string $value): ?self
    {
        $declined = strcasecmp($name, self::DECLINED) === 0;
        if (!$declined && strcasecmp($name, self::FAILED) !== 0) {
            return null;
        }
        $item = StructuredField::item($value);
        $reason = (string) ($item[''] ?? 'unsupported');
        $message = (string) ($item['message'] ?? '');
        return new self($declined, $reason, (int) ($item['errno'] ?? 0), $message !== '' ? $message : "egress broker: {$reason}");
    }

    /**
     * Reads the first verdict among the header fields of a response, by lower-case name.
     *
     * @param array<string, list<string>> $headers
     */
    public static function find(array $headers): ?self
    {
        foreach ([self::DECLINED, self::FAILED] as $name) {
            if (isset($headers[strtolower($name)][0])) {
                return self::read($name, $headers[strtolower($name)][0]);
            }
        }
        return null;
    }

    /** Parses a field line as curl passes it. */
    public static function readLine(string $line): ?self
    {
        // Sooner than splitting each line of each answer.
        if (strncasecmp($line, 'Hearth-', 7) !== 0) {
            return null;
        }
        [$name, $value] = explode(':', $line, 2) + [1 => ''];
        return self::read(trim($name), trim($value));
    }

    /** A fault between this process and the broker that will affect the next call too; null: none. */
    public function trouble(): ?string
    {
        return ['token' => 'it refuses the token', 'user' => 'it does not serve this user'][$this->reason] ?? null;
    }

    /**
     * Returns whether the call may be made directly. Not if the connection took longer than the caller's time-out: a second attempt would
     * take as long and fail in the same way.
     */
    public function direct(): bool
    {
        return $this->declined && !($this->errno === self::TIMED_OUT && in_array($this->reason, self::CONNECTING, true));
    }
}
