<?php

/** Makes the calls of one test for each line of JSON on standard input; prints what PHP code sees of them, a line for each test. */

declare(strict_types=1);

while (($line = fgets(STDIN)) !== false) {
    $test = json_decode($line, true, 512, JSON_THROW_ON_ERROR);
    $handle = curl_init();
    $seen = [];
    foreach ($test['options'] as $name => $value) {
        if ($name === 'FORM') {
            curl_setopt($handle, CURLOPT_POSTFIELDS, $value);
        } elseif ($name === 'GET') {
            continue;
        } elseif ($name === 'UPLOAD') {
            $body = fopen('php://memory', 'w+');
            fwrite($body, mb_convert_encoding($value, 'ISO-8859-1', 'UTF-8'));
            rewind($body);
            curl_setopt_array($handle, [CURLOPT_UPLOAD => true, CURLOPT_INFILE => $body, CURLOPT_INFILESIZE => fstat($body)['size']]);
        } elseif (!@curl_setopt($handle, constant("CURLOPT_$name"), $value)) {
            $seen[] = "CURLOPT_$name is refused";
        }
    }
    foreach ($test['urls'] as $url) {
        if (isset($test['options']['GET'], $test['options']['POSTFIELDS'])) {
            curl_setopt($handle, CURLOPT_HTTPGET, true);
            $url .= (str_contains($url, '?') ? '&' : '?') . $test['options']['POSTFIELDS'];
        }
        $lines = [];
        curl_setopt_array($handle, [
            CURLOPT_URL => $url, CURLOPT_RETURNTRANSFER => true, CURLOPT_TIMEOUT => $test['options']['TIMEOUT'] ?? 10,
            CURLOPT_HEADERFUNCTION => function ($_, string $line) use (&$lines): int {
                $lines[] = rtrim($line, "\r\n");
                return strlen($line);
            },
        ]);
        $body = curl_exec($handle);
        $info = curl_getinfo($handle);
        $seen[] = [
            'body' => is_string($body) ? base64_encode($body) : $body, 'errno' => curl_errno($handle), 'lines' => $lines,
            'info' => array_intersect_key($info, array_flip([
                'url', 'content_type', 'http_code', 'redirect_count', 'redirect_url', 'size_download', 'filetime',
            ])),
            'cookies' => curl_getinfo($handle, CURLINFO_COOKIELIST),
        ];
    }
    curl_close($handle);
    unset($handle);
    echo json_encode($seen, JSON_THROW_ON_ERROR | JSON_INVALID_UTF8_SUBSTITUTE), "\n";
}
