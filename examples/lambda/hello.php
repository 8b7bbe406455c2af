<?php

/** A function: the file returns what handles an event. */

declare(strict_types=1);

use Hearth\Lambda\Context;

return static fn (array $event, Context $context): array => [
    'message' => 'Hello, ' . ($event['name'] ?? 'world') . '!',
    'request' => $context->getAwsRequestId(),
];
