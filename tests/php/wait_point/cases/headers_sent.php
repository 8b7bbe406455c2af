<?php

var_dump(headers_sent());
while (ob_get_level() > 0) {
    ob_end_flush();
}
flush();
var_dump(headers_sent($file, $line), basename($file), $line);
header('X-Late: no');
