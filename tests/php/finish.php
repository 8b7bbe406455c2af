<?php
// Answers, then goes on: ?file=PATH gets a line afterwards, ?gate=PATH waits for that file, ?echo prints after the end.
ignore_user_abort(true);
echo 'answered';
$first = fastcgi_finish_request();
$second = hearth_finish_request();
if (isset($_GET['echo'])) {
    echo 'this goes nowhere';
    flush();
}
while (!file_exists($_GET['gate'] ?? __FILE__)) {
    usleep(1000);
    clearstatcache();
}
if (isset($_GET['file'])) {
    file_put_contents($_GET['file'], json_encode([$first, $second, connection_status()]) . "\n");
}
