<?php

// As a worker runs it. CONNECTION is kept (opened when the worker starts) or new (in each request).

declare(strict_types=1);

use Bench\Page;

require __DIR__ . '/page.php';

if (getenv('CONNECTION') === 'kept') {
    hearth_on_worker_start(static function (): void {
        Page::$connection = Page::open();
    });
}

$handle = static function (): void {
    Page::answer(Page::$connection ?? Page::open());
};

while (hearth_handle_request($handle)) {
}
