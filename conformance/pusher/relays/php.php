<?php

/**
 * pusher-php-server behind relays.py: one command on a line of JSON in, one answer out. PUSHER_PHP names a Composer project that requires
 * the library, or a copy of the library itself; then Debian's Guzzle is used.
 */

declare(strict_types=1);

$place = getenv('PUSHER_PHP') ?: '.';
if (is_file("{$place}/vendor/autoload.php")) {
    require "{$place}/vendor/autoload.php";
} else {
    require_once 'GuzzleHttp/autoload.php';
    require_once 'Psr/Log/autoload.php';
    spl_autoload_register(static function (string $class) use ($place): void {
        $file = "{$place}/src/" . strtr(substr($class, strlen('Pusher\\')), '\\', '/') . '.php';
        if (str_starts_with($class, 'Pusher\\') && is_file($file)) {
            require $file;
        }
    });
}

if (!class_exists(Pusher\Pusher::class)) {
    fwrite(STDERR, "no pusher-php-server in {$place}\n");
    exit(1);
}

/** @param array<string, mixed> $command */
function answer(Pusher\Pusher $pusher, array $command): mixed
{
    $keys = ['socket_id' => 'SocketID', 'info' => 'Info', 'filter_by_prefix' => 'Prefix'];
    $with = static fn (string ...$names): array => array_filter(array_combine($names, array_map(
        static fn (string $name): string => $command[$keys[$name]] ?? '',
        $names,
    )));

    return match ($command['Do']) {
        'trigger' => $pusher->trigger($command['Channels'], $command['Event'], $command['Data'], $with('socket_id', 'info')),
        'batch' => $pusher->triggerBatch(array_map(
            static fn (array $one): array => ['channel' => $one['Channel'], 'name' => $one['Name'], 'data' => $one['Data']],
            $command['Batch'],
        )),
        'authorize' => json_decode(isset($command['User'])
            ? $pusher->authorizePresenceChannel($command['Channel'], $command['SocketID'], $command['User'], $command['UserInfo'])
            : $pusher->authorizeChannel($command['Channel'], $command['SocketID'])),
        'sign in' => json_decode($pusher->authenticateUser($command['SocketID'], ['id' => $command['User']])),
        'send to user' => $pusher->sendToUser($command['User'], $command['Event'], $command['Data']),
        'terminate' => $pusher->terminateUserConnections($command['User']),
        'channel' => $pusher->getChannelInfo($command['Channel'], $with('info')),
        'channels' => $pusher->getChannels($with('filter_by_prefix', 'info')),
        'users' => $pusher->getPresenceUsers($command['Channel']),
        'webhook' => ['events' => $pusher->webhook($command['Headers'], $command['Body'])->get_events()],
        default => throw new DomainException('unsupported'),
    };
}

// `php php.php probe` only checks whether the library is installed.
if (($argv[1] ?? '') === 'probe') {
    exit(0);
}
$app = json_decode(getenv('RELAY'), true);
[$host, $port] = explode(':', $app['Host']);
$options = ['host' => $host, 'port' => (int) $port, 'scheme' => 'http', 'useTLS' => false];
while (($line = fgets(STDIN)) !== false) {
    $command = json_decode($line, true);
    try {
        $encrypted = isset($app['EncryptionKey']) ? ['encryption_master_key_base64' => $app['EncryptionKey']] : [];
        $pusher = new Pusher\Pusher($app['Key'], $command['Secret'] ?? $app['Secret'], $app['ID'], $options + $encrypted);
        $reply = ['result' => answer($pusher, $command)];
    } catch (Throwable $error) {
        $reply = ['error' => get_class($error) . ': ' . $error->getMessage(), 'unsupported' => $error instanceof DomainException];
    }
    echo json_encode($reply, JSON_THROW_ON_ERROR), "\n";
}
