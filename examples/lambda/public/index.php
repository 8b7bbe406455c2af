<?php

/** An HTTP application without any code for Lambda. */

declare(strict_types=1);

header('Content-Type: text/plain; charset=utf-8');
echo "Hello from {$_SERVER['REQUEST_METHOD']} {$_SERVER['REQUEST_URI']}\n";
