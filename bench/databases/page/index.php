<?php

// As php-fpm runs it: each request begins at nothing. CONNECTION is new or persistent.

declare(strict_types=1);

use Bench\Page;

require __DIR__ . '/page.php';

Page::answer(Page::open(getenv('CONNECTION') === 'persistent'));
