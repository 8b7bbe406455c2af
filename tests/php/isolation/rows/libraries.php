<?php

declare(strict_types=1);

// What extensions and the C libraries under them keep.
Row::$current = 'Extensions and libraries';

Row::add('mb_internal_encoding()', fn () => mb_internal_encoding('ISO-8859-1'), fn () => mb_internal_encoding(), able: function_exists('mb_internal_encoding'));
Row::add('mb_substitute_character(), mb_language(), mb_detect_order()', function (): void {
    mb_substitute_character('long');
    mb_language('Japanese');
    mb_detect_order(['EUC-JP']);
}, fn () => [mb_substitute_character(), mb_language(), mb_detect_order()], able: function_exists('mb_language'));
Row::add('mb_regex_encoding()', fn () => mb_regex_encoding('EUC-JP'), fn () => mb_regex_encoding(), able: function_exists('mb_regex_encoding'));
Row::add('libxml_use_internal_errors()', fn () => libxml_use_internal_errors(true), fn () => libxml_use_internal_errors(), able: function_exists('libxml_use_internal_errors'));
Row::add('errors of libxml', function (): void {
    libxml_use_internal_errors(true);
    (new DOMDocument())->loadXML('<a><b></a>');
}, fn () => [count(libxml_get_errors()), libxml_get_last_error() !== false], able: class_exists('DOMDocument'));
Row::add('entity loader of libxml', fn () => libxml_set_external_entity_loader(static fn () => null), fn () => libxml_get_external_entity_loader() !== null, able: function_exists('libxml_get_external_entity_loader'));
Row::add('intl_get_error_code()', fn () => @(new Collator('en'))->getSortKey("\xff\xff"), fn () => intl_get_error_code(), able: function_exists('intl_get_error_code'));
Row::add('Locale::setDefault()', fn () => Locale::setDefault('de_DE'), fn () => Locale::getDefault(), able: class_exists('Locale'));
Row::add('textdomain()', fn () => textdomain('left'), fn () => textdomain(null), able: function_exists('textdomain'));
Row::add('errors of OpenSSL', fn () => @openssl_pkey_get_private('no key'), function (): int {
    for ($i = 0; openssl_error_string() !== false; $i++) {
    }
    return $i;
}, silent: true, able: function_exists('openssl_pkey_get_private'));

$curl = null;
if (function_exists('curl_init')) {
    $curl = curl_init('http://127.0.0.1:9/');
    curl_setopt_array($curl, [CURLOPT_PRIVATE => 'boot', CURLOPT_RETURNTRANSFER => true, CURLOPT_CONNECTTIMEOUT => 1]);
}
Row::add('curl handle of the boot', function () use ($curl): void {
    curl_setopt($curl, CURLOPT_PRIVATE, 'left');
    curl_exec($curl);
}, fn () => [curl_getinfo($curl, CURLINFO_PRIVATE), curl_errno($curl)], able: $curl !== null);
// A jar is written when its handle is freed.
Row::add('cookies of a curl handle left open', function (): void {
    $count = Cookies::count() + 1;
    file_put_contents(place('cookies'), $count);
    $curl = curl_init('file://' . place('boot.txt'));
    curl_setopt_array($curl, [CURLOPT_RETURNTRANSFER => true, CURLOPT_COOKIEJAR => place('jar')]);
    curl_setopt($curl, CURLOPT_COOKIELIST, "Set-Cookie: count=$count; domain=example.com; path=/");
    curl_exec($curl);
    Kept::$things['curl'][] = $curl;
}, fn () => eventually(static fn (): bool => Cookies::count() === Cookies::inJar()), able: $curl !== null);
final class Cookies
{
    public static function count(): int
    {
        return (int) @file_get_contents(place('cookies'));
    }

    public static function inJar(): int
    {
        return preg_match('/\tcount\t(\d+)/', (string) @file_get_contents(place('jar')), $match) === 1 ? (int) $match[1] : 0;
    }
}

$libc = null;
if (class_exists(FFI::class) && in_array(strtolower((string) ini_get('ffi.enable')), ['1', 'on', 'true'], true)) {
    $libc = FFI::cdef('extern int opterr;', 'libc.so.6');
}
Row::add('variable of a C library', fn () => $libc->opterr = 7, fn () => $libc->opterr, able: $libc !== null);
