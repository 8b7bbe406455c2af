<?php

/**
 * Runs the cases of EGRESS_CASES (curl, streams) whose names contain EGRESS_ONLY. Prints their observations as JSON, and
 * how many of their calls were made without libcurl.
 */

declare(strict_types=1);

foreach (['GuzzleHttp', 'Symfony/Component/HttpClient'] as $package) {
    if (is_file("/usr/share/php/$package/autoload.php")) {
        require_once "/usr/share/php/$package/autoload.php";
    }
}

$bases = [getenv('EGRESS_HTTP'), getenv('EGRESS_HTTPS')];
$cases = getenv('EGRESS_CASES') === 'streams'
    ? (require __DIR__ . '/streams.php')(...$bases)
    : (require __DIR__ . '/cases.php')(...$bases) + (require __DIR__ . '/clients.php')(...$bases)
        + (require __DIR__ . '/codings.php')($bases[0]);

/** Returns the number of this process's calls without libcurl, from phpinfo(). */
function fast_calls(): int
{
    if (!extension_loaded('hearth')) {
        return 0;
    }
    ob_start();
    (new ReflectionExtension('hearth'))->info();
    preg_match('/without libcurl => (\d+)/', ob_get_clean(), $found);
    return (int) $found[1];
}

$seen = [];
$fast = [];
foreach ($cases as $name => $case) {
    if (str_contains($name, (string) getenv('EGRESS_ONLY'))) {
        $before = fast_calls();
        $seen[$name] = $case();
        $fast[$name] = fast_calls() - $before;
    }
}
echo json_encode(['seen' => $seen, 'fast' => $fast], JSON_THROW_ON_ERROR | JSON_INVALID_UTF8_SUBSTITUTE | JSON_PRESERVE_ZERO_FRACTION);
