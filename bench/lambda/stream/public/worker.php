<?php

declare(strict_types=1);

// The same page in a loop, for the models that boot ahead.
$page = static function (): void {
    require __DIR__ . '/index.php';
};
while (hearth_handle_request($page)) {
    continue;
}
