<?php

// The same page in a loop, for the models that boot ahead.
while (hearth_handle_request(static function (): void {
    require __DIR__ . '/index.php';
})) {
}
