<?php

/** The broker's HTTP listener: where it is, and the fields that it reads. */

declare(strict_types=1);

namespace Hearth\Egress;

final class Listener
{
    /** Fields that the broker reads. Of a caller's own fields those of these names are dropped: it may be passing on what its clients sent. */
    public const CONTROL = 'Hearth-Control';
    public const ORIGIN = 'Hearth-Origin';
    public const PARENT = 'Hearth-Traceparent';
    public const STATE = 'Hearth-Tracestate';

    public const RESERVED = [self::CONTROL, self::ORIGIN, self::PARENT, self::STATE];

    /** The URL that curl is given; the broker's socket and the request's target decide where the call goes. */
    public const URL = 'http://hearth/';

    /**
     * Options of each call through a listener. Without CURLOPT_NOSIGNAL curl_multi_exec() changes the disposition of SIGPIPE for each handle that it looks at: 100
     * calls at once of Symfony's client took 60,000 system calls for it. libcurl writes to a socket without TLS with MSG_NOSIGNAL, and looks up no name here.
     */
    public const QUIET = [CURLOPT_NOSIGNAL => true];

    /** Hosts of the kind `hearth-7`. A process has at most as many connections to the broker as that, times curl's limit for a host. */
    private const HOSTS = 64;

    private static int $host = 0;

    public function __construct(public readonly string $socket, private readonly string $token)
    {
    }

    /**
     * The same with another host in turn: curl's limit of connections to a host is one of connections to the origin, which the broker keeps, and holds no
     * call back on its way there. The call must name its host in a field.
     */
    public static function url(string $path = '/'): string
    {
        self::$host = (self::$host + 1) % self::HOSTS;
        return 'http://hearth-' . self::$host . $path;
    }

    /** The value of Hearth-Control; null: it cannot be said in a field, so the call must be made directly. */
    public function control(Control $control): ?string
    {
        return $control->field($this->token);
    }

    /**
     * Options that send the call of a curl handle through this listener. One call per connection: on a kept one libcurl would repeat a POST itself.
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
        ] + self::QUIET;
        // As libcurl does with those of a URL; the caller's own field Authorization overrides them.
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

    /** Is this a field that no caller may send? */
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

class_alias(Listener::class, 'Hearth\Egress\Door');
