<?php

/** The HTTP application as a worker script, for the models that boot ahead. */

declare(strict_types=1);

while (
    hearth_handle_request(static function (): void {
        require __DIR__ . '/public/index.php';
    })
) {
}
