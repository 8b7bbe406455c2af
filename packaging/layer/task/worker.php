<?php

/** The same HTTP application booted ahead, for the models that do so. */

declare(strict_types=1);

while (
    hearth_handle_request(static function (): void {
        require __DIR__ . '/public/index.php';
    })
) {
}
