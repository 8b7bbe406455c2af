<?php

/** The broker's HTTP listener: its address, and the fields that it needs. */

declare(strict_types=1);

namespace Hearth\Egress;

final class Door
{
    /** Fields that the broker reads. A caller's own fields with these names are dropped, because it may forward its clients' fields. */
    public const CONTROL = 'Hearth-Control';
    public const ORIGIN = 'Hearth-Origin';
    public const PARENT = 'Hearth-Traceparent';
    public const STATE = 'Hearth-Tracestate';

    public const RESERVED = [self::CONTROL, self::ORIGIN, self::PARENT, self::STATE];

    /** The URL that curl is given; the broker's socket and the request's target decide where the call goes. */
    public const URL = 'http://hearth/';

    /** Hosts of the kind `hearth-7`. A process has at most as many connections to the broker as that, times curl's limit for a host. */
    private const HOSTS = 64;

    private static int $host = 0;

    public function __construct(public readonly string $socket, private readonly string $token)
    {
    }

    /**
     * Returns an address with another host in turn. The broker enforces the limit of connections to the origin, so curl's limit for a host must not
     * delay calls to the broker. The call must name its host in a field.
     */
    public static function url(string $path = '/'): string
    {
        self::$host = (self::$host + 1) % self::HOSTS;
        return 'http://hearth-' . self::$host . $path;
    }

    /** The value of Hearth-Control; null: a field cannot express it, so the call must be made directly. */
    public function control(Control $control): ?string
    {
        return $control->field($this->token);
    }

    /**
     * Options that send the call of a curl handle through this door. One call per connection: on a kept one libcurl would repeat a POST itself.
     *
     * @return array<int, mixed>
     */
    public function curl(Target $target): array
    {
        $options = [
            CURLOPT_URL => self::URL,
            CURLOPT_REQUEST_TARGET => $target->absolute(),
            CURLOPT_UNIX_SOCKET_PATH => $this->socket,
            CURLOPT_PROTOCOLS => CURLPROTO_HTTP,
            CURLOPT_HTTP_VERSION => CURL_HTTP_VERSION_1_1,
            CURLOPT_PROXY => '',
            CURLOPT_NOPROXY => '*',
            // A Unix socket has no address family.
            CURLOPT_IPRESOLVE => CURL_IPRESOLVE_WHATEVER,
            CURLOPT_FRESH_CONNECT => true,
            CURLOPT_FORBID_REUSE => true,
        ];
        // Sends the credentials of a URL as libcurl does; the caller's own field Authorization overrides them.
        $user = [CURLOPT_USERNAME => $target->user, CURLOPT_PASSWORD => (string) $target->password];
        return $target->user === null ? $options : $options + $user;
    }

    /**
     * The trace context of the request being answered: header fields for the broker alone.
     *
     * @return array<string, string>
     */
    public static function trace(): array
    {
        $fields = [];
        $rules = [self::PARENT => ['HTTP_TRACEPARENT', '/^[0-9a-f-]{55}$/D'], self::STATE => ['HTTP_TRACESTATE', '/^[ -~]{1,512}$/D']];
        foreach ($rules as $field => [$variable, $form]) {
            $value = $_SERVER[$variable] ?? null;
            if (!is_string($value) || preg_match($form, $value) !== 1) {
                break;
            }
            $fields[$field] = $value;
        }
        return $fields;
    }

    /** Returns whether callers may not send this field. */
    public static function reserves(string $field): bool
    {
        foreach (self::RESERVED as $reserved) {
            if (strcasecmp($field, $reserved) === 0) {
                return true;
            }
        }
        return false;
    }
}
