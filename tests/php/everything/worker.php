<?php
$dump = require __DIR__ . '/public/dump.php';
while (hearth_handle_request($dump)) {
}
