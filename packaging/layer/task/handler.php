<?php

/** Reports what a function finds in the layer, for scripts/test-layer. */

declare(strict_types=1);

return static function (array $event): mixed {
    if ($event['do'] === 'throw') {
        throw new RuntimeException('thrown');
    }
    if ($event['do'] === 'hi') {
        return 'hi';
    }
    $number = new NumberFormatter('de_DE', NumberFormatter::DECIMAL);
    return [
        'version' => PHP_MAJOR_VERSION . '.' . PHP_MINOR_VERSION,
        'extensions' => get_loaded_extensions(),
        'summer' => (new DateTimeImmutable('2026-07-01', new DateTimeZone('Europe/Berlin')))->format('P'),
        'upper' => mb_strtoupper('über'),
        'intl' => $number->format(1234.5),
        'opcache' => (bool) (opcache_get_status(false)['opcache_enabled'] ?? false),
        'sqlite' => (int) (new PDO('sqlite::memory:'))->query('SELECT 6 * 7')->fetchColumn(),
        'written' => file_put_contents('/tmp/file', 'x') === 1,
        'ca' => is_readable((string) ini_get('openssl.cafile')) && openssl_x509_read((string) file_get_contents((string) ini_get('openssl.cafile'))) !== false,
        'curl' => explode('/', curl_version()['ssl_version'])[0],
        // A program of the system gets nothing of ours: here there is none, so nothing is printed.
        'child' => trim((string) @shell_exec('true')),
        'ini' => php_ini_loaded_file(),
    ];
};
