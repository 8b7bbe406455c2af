<?php
// Answers, then goes on: ?file=PATH gets a line afterwards, ?sleep=SECONDS, ?echo prints after the end.
ignore_user_abort(true);
echo 'answered';
$first = fastcgi_finish_request();
$second = hearth_finish_request();
if (isset($_GET['echo'])) {
    echo 'this goes nowhere';
    flush();
}
sleep((int) ($_GET['sleep'] ?? 0));
if (isset($_GET['file'])) {
    file_put_contents($_GET['file'], json_encode([$first, $second, connection_status()]) . "\n");
}
