<?php

$handle = require __DIR__ . '/app.php';
boot();
while (hearth_handle_request($handle)) {
}
