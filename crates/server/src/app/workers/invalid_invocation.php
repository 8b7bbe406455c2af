<?php

/*
 * An invocation that cannot be made, or that has no result. Its type is reported to Lambda.
 */

declare(strict_types=1);

namespace Hearth\Worker;

final class InvalidInvocation extends \RuntimeException
{
    public function __construct(public readonly string $type, string $message, ?\Throwable $previous = null)
    {
        parent::__construct($message, 0, $previous);
    }
}
