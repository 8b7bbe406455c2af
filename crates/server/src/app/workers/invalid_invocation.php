<?php

/*
 * Why a function's runner cannot make an invocation, or has no answer to it. Its type is what Lambda is told.
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
