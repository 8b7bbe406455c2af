<?php
/* Makes calls one after another and prints what each took, in microseconds, as JSON:
 *     php calls.php MODE COUNT CA URL [URL ...]
 * MODE: new (a handle for each call, as Guzzle without a shared handler has it), reused (one handle for all), door (a handle for each call,
 * through the broker that HEARTH_EGRESS names). Several URLs are called in turn. An answer that is not 200 ends it with status 1. */
declare(strict_types=1);

[, $mode, $count, $ca] = $argv;
$urls = array_slice($argv, 4);
$times = [];
$kept = $mode === 'reused' ? curl_init() : null;
for ($call = 0; $call < (int) $count; $call++) {
    $url = $urls[$call % count($urls)];
    $began = hrtime(true);
    $curl = $kept ?? curl_init();
    curl_setopt($curl, CURLOPT_RETURNTRANSFER, true);
    if ($mode === 'door') {
        curl_setopt($curl, CURLOPT_URL, 'http://hearth/');
        curl_setopt($curl, CURLOPT_REQUEST_TARGET, $url);
        curl_setopt($curl, CURLOPT_UNIX_SOCKET_PATH, getenv('HEARTH_EGRESS'));
    } else {
        curl_setopt($curl, CURLOPT_URL, $url);
        curl_setopt($curl, CURLOPT_CAINFO, $ca);
    }
    $body = curl_exec($curl);
    $status = curl_getinfo($curl, CURLINFO_RESPONSE_CODE);
    if ($kept === null) {
        curl_close($curl);
    }
    unset($curl);
    $times[] = (hrtime(true) - $began) / 1000;
    if ($body === false || $status !== 200) {
        fwrite(STDERR, "call $call: status $status: " . substr((string) $body, 0, 200) . "\n");
        exit(1);
    }
}
echo json_encode($times), "\n";
