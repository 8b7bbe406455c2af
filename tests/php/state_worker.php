<?php
// As state.php, in a loop.
$state = require __DIR__ . '/public/state_of_process.php';
while (hearth_handle_request(static fn () => $state(isset($_GET['change'])))) {
}
