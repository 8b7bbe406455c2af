<?php

$handle = require __DIR__ . '/suite.php';
// ?boot: the script ends, and is booted anew where its process goes on
while (hearth_handle_request($handle) && !isset($_GET['boot'])) {
}
