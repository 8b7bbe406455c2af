<?php

$handle = require __DIR__ . '/suite.php';
while (hearth_handle_request($handle)) {
}
