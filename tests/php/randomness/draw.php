<?php

declare(strict_types=1);

// Draws from every random generator that PHP and its libraries have. The boot draws too, so that all of them are seeded by then.

/** @return Closure(): array<string, mixed> */
return (static function (): Closure {
    $library = static function (string $declarations, string $name): ?FFI {
        try {
            return FFI::cdef($declarations, $name);
        } catch (Throwable) {
            return null;
        }
    };
    $able = class_exists(FFI::class) && ini_get('ffi.enable') === '1';
    $gnutls = $able ? $library('int gnutls_rnd(int level, void *data, size_t len);', 'libgnutls.so.30') : null;
    // Loaded before any use, as with the extension xsl; a library loaded by FFI cannot be made safe for a snapshot.
    $gcrypt = $able && extension_loaded('xsl')
        ? $library('const char *gcry_check_version(const char *); void gcry_randomize(void *data, size_t len, int level);', 'libgcrypt.so.20')
        : null;
    $gcrypt?->gcry_check_version(null);
    $database = extension_loaded('pdo_sqlite') ? new PDO('sqlite::memory:') : null;
    $key = openssl_pkey_new(['private_key_type' => OPENSSL_KEYTYPE_EC, 'curve_name' => 'prime256v1']);
    $bytes = static function (Closure $fill): string {
        $data = FFI::new('char[16]');
        $fill($data);
        return bin2hex(FFI::string($data, 16));
    };
    $hello = static function (): string {
        $listener = stream_socket_server('tcp://127.0.0.1:0');
        $client = stream_socket_client('tcp://' . stream_socket_get_name($listener, false));
        $server = stream_socket_accept($listener);
        stream_set_blocking($client, false);
        stream_context_set_option($client, 'ssl', 'verify_peer', false);
        stream_socket_enable_crypto($client, true, STREAM_CRYPTO_METHOD_TLSv1_3_CLIENT);
        // TLSPlaintext, Handshake, version: RFC 8446, 4.1.2
        return bin2hex(substr((string) fread($server, 1000), 11, 32));
    };
    $shuffled = static function (): string {
        $list = range(1, 30);
        shuffle($list);
        return implode(' ', $list);
    };

    return static fn (): array => array_filter([
        // seeded with 32 bits, all of them together
        'mt_rand' => mt_rand() . ' ' . mt_rand(),
        'rand' => rand() . ' ' . rand(),
        'shuffle' => $shuffled(),
        'array_rand' => implode(' ', array_rand(range(1, 60), 30)),
        'str_shuffle' => str_shuffle('abcdefghijklmnopqrstuvwxyz0123456789'),
        'lcg_value' => lcg_value() . ' ' . lcg_value(),
        // the clock, so two processes need not differ
        'uniqid' => getmypid() . ' ' . uniqid(),
        'uniqid with more entropy' => uniqid('', true),
        'random_bytes' => bin2hex(random_bytes(16)),
        'random_int' => random_int(PHP_INT_MIN, PHP_INT_MAX),
        'Random\Randomizer' => bin2hex((new Random\Randomizer())->getBytes(16)),
        'Random\Engine\Xoshiro256StarStar' => bin2hex((new Random\Engine\Xoshiro256StarStar())->generate()),
        'gmp_random_bits' => function_exists('gmp_random_bits') ? gmp_strval(gmp_random_bits(128)) : null,
        'randomblob of SQLite' => $database?->query('SELECT hex(randomblob(16))')->fetchColumn(),
        'openssl_random_pseudo_bytes' => bin2hex(openssl_random_pseudo_bytes(16)),
        'openssl_pkey_new' => openssl_pkey_get_details(
            openssl_pkey_new(['private_key_type' => OPENSSL_KEYTYPE_EC, 'curve_name' => 'prime256v1'])
        )['key'],
        'openssl_sign' => (static function () use ($key): string {
            openssl_sign('text', $signature, $key, OPENSSL_ALGO_SHA256);
            return bin2hex($signature);
        })(),
        'TLS client' => $hello(),
        'session_create_id' => session_create_id(),
        'password_hash' => password_hash('secret', PASSWORD_BCRYPT, ['cost' => 4]),
        'tempnam' => (static function (): string {
            unlink($name = (string) tempnam(sys_get_temp_dir(), 'hearth'));
            return $name;
        })(),
        'sodium_crypto_secretbox_keygen' => function_exists('sodium_crypto_secretbox_keygen') ? bin2hex(sodium_crypto_secretbox_keygen()) : null,
        'sodium_crypto_box_keypair' => function_exists('sodium_crypto_box_keypair') ? bin2hex(sodium_crypto_box_keypair()) : null,
        'gnutls nonce' => $gnutls ? $bytes(fn ($data) => $gnutls->gnutls_rnd(0, $data, 16)) : null,
        'gnutls random' => $gnutls ? $bytes(fn ($data) => $gnutls->gnutls_rnd(1, $data, 16)) : null,
        'gnutls key' => $gnutls ? $bytes(fn ($data) => $gnutls->gnutls_rnd(2, $data, 16)) : null,
        'gcrypt' => $gcrypt ? $bytes(fn ($data) => $gcrypt->gcry_randomize($data, 16, 1)) : null,
    ], static fn ($value): bool => $value !== null);
})();
