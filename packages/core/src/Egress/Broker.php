<?php

/**
 * Finds the egress broker of this machine. Promises: it never throws, never uses the network, and costs two stat() calls if there is a
 * broker. A missing broker is reported once per process, and looked for again at the next call. Nothing is sent to a socket of an
 * untrusted user.
 */

declare(strict_types=1);

namespace Hearth\Egress;

final class Broker
{
    /** Names the broker's socket; the token lies beside it. */
    public const VARIABLE = 'HEARTH_EGRESS';

    /** The number of the user that the broker runs as, where it is neither root nor PHP's own. */
    public const OWNER = 'HEARTH_EGRESS_OWNER';

    private const OFF = ['', 'off', 'no', 'none', 'false', '0'];

    /** @var array<string, true> sockets that were reported as missing */
    private static array $told = [];

    private ?string $token = null;

    /** When the token's file was written and which file it was: the broker writes a new one at each start. */
    private string $version = '';

    /** The socket's file that was found to belong to a trusted user. */
    private string $trusted = '';

    /**
     * @param ?string $socket path of the broker's socket; null or "off": there is none
     * @param ?\Closure(string): void $notice called once per process if the configured broker is missing; by default it writes to PHP's
     * error log
     */
    public function __construct(private ?string $socket, private readonly ?\Closure $notice = null)
    {
        if ($socket !== null && in_array(strtolower(trim($socket)), self::OFF, true)) {
            $this->socket = null;
        }
    }

    /**
     * The broker that HEARTH_EGRESS names. None if the extension `hearth` intercepts curl, which does the same earlier.
     *
     * @param ?\Closure(string): (string|false) $setting reads a PHP setting; by default ini_get()
     */
    public static function fromEnvironment(?\Closure $notice = null, ?\Closure $setting = null): self
    {
        if (self::extensionCalls($setting ?? ini_get(...))) {
            return new self(null, $notice);
        }
        $socket = $_SERVER[self::VARIABLE] ?? $_ENV[self::VARIABLE] ?? getenv(self::VARIABLE);
        return new self(is_string($socket) ? $socket : null, $notice);
    }

    /** Returns whether the extension is loaded, intercepts curl, and has a broker (native/ext/curl/settings.c). */
    private static function extensionCalls(\Closure $setting): bool
    {
        $broker = (string) $setting('hearth.egress');
        if (strtolower($broker) === 'auto') {
            $broker = (string) getenv(self::VARIABLE);
        }
        return str_starts_with($broker, '/') && filter_var($setting('hearth.intercept_curl'), FILTER_VALIDATE_BOOL);
    }

    /** Returns whether a broker is configured. */
    public function configured(): bool
    {
        return $this->socket !== null;
    }

    /** Returns the broker's listener; null: make the call directly. */
    public function listener(): ?Listener
    {
        if ($this->socket === null) {
            return null;
        }
        if (!$this->trusts($this->socket)) {
            $this->gone('a user that is not trusted owns it: neither root, nor PHP\'s own, nor ' . self::OWNER);
            return null;
        }
        $file = dirname($this->socket) . '/egress.token';
        clearstatcache(true, $file);
        $stat = @stat($file);
        $version = $stat === false ? '' : "{$stat['ino']} {$stat['mtime']} {$stat['size']}";
        if ($this->token === null || $version !== $this->version) {
            $token = $stat === false ? false : @file_get_contents($file);
            if ($token === false || trim($token) === '') {
                $this->gone("{$file} cannot be read");
                return null;
            }
            $this->token = trim($token);
            $this->version = $version;
        }
        return new Listener($this->socket, $this->token);
    }

    /** @deprecated use listener() */
    public function door(): ?Listener
    {
        return $this->listener();
    }

    /**
     * Another user of the machine could listen where a broker is expected, and calls carry credentials. Trusted users are root, PHP's
     * own user, the configured one, and the owner of the socket's folder. The last only if each folder above it is writable for its
     * owner only (native/ext/broker/peer.c has the same rule).
     */
    private function trusts(string $socket): bool
    {
        clearstatcache(true, $socket);
        $stat = @stat($socket);
        if ($stat === false) {
            // Where there is none, connecting fails.
            return true;
        }
        $file = "{$stat['dev']} {$stat['ino']} {$stat['uid']} {$stat['ctime']}";
        if ($file !== $this->trusted) {
            $named = $_SERVER[self::OWNER] ?? $_ENV[self::OWNER] ?? getenv(self::OWNER);
            $known = [0, self::ownUser(), is_string($named) && ctype_digit($named) ? (int) $named : null];
            if (!in_array($stat['uid'], $known, true) && !self::ownsFolder($stat['uid'], $socket)) {
                return false;
            }
            $this->trusted = $file;
        }
        return true;
    }

    private static function ownUser(): ?int
    {
        $user = function_exists('posix_geteuid') ? posix_geteuid() : @fileowner('/proc/self');
        return $user === false ? null : $user;
    }

    /** In a folder like /tmp another user may have created the socket's folder before the broker. */
    private static function ownsFolder(int $user, string $socket): bool
    {
        $path = realpath($socket);
        if ($path === false || @fileowner($folder = dirname($path)) !== $user) {
            return false;
        }
        while ($folder !== '/') {
            $folder = dirname($folder);
            $stat = @stat($folder);
            // Members of root's group are trusted like root.
            if ($stat === false || ($stat['mode'] & 0o002) !== 0 || (($stat['mode'] & 0o020) !== 0 && $stat['gid'] !== 0)) {
                return false;
            }
        }
        return true;
    }

    /** Says once per process that calls are made directly, and why; forgets the token. */
    public function gone(string $why): void
    {
        $this->token = null;
        $socket = (string) $this->socket;
        if (isset(self::$told[$socket])) {
            return;
        }
        self::$told[$socket] = true;
        $message = "hearth: no egress broker at {$socket} ({$why}); calls are made directly";
        $this->notice !== null ? ($this->notice)($message) : error_log($message);
    }
}
