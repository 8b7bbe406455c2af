<?php

$handle = require __DIR__ . '/suite.php';
// ?boot: the script ends, and boots again if its process continues
while (hearth_handle_request($handle) && !isset($_GET['boot'])) {
}
