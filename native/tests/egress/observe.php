<?php

/** Runs the cases of EGRESS_CASES (curl, streams) whose name holds the word in EGRESS_ONLY, and prints what they saw as JSON. */

declare(strict_types=1);

foreach (['GuzzleHttp', 'Symfony/Component/HttpClient'] as $package) {
    if (is_file("/usr/share/php/$package/autoload.php")) {
        require_once "/usr/share/php/$package/autoload.php";
    }
}

$bases = [getenv('EGRESS_HTTP'), getenv('EGRESS_HTTPS')];
$cases = [];
if (getenv('EGRESS_CASES') === 'streams') {
    $cases = (require __DIR__ . '/streams.php')(...$bases);
} else {
    $cases = (require __DIR__ . '/cases.php')(...$bases) + (require __DIR__ . '/clients.php')(...$bases);
}
$seen = [];
foreach ($cases as $name => $case) {
    if (str_contains($name, (string) getenv('EGRESS_ONLY'))) {
        $seen[$name] = $case();
    }
}
echo json_encode($seen, JSON_THROW_ON_ERROR | JSON_INVALID_UTF8_SUBSTITUTE | JSON_PRESERVE_ZERO_FRACTION);
