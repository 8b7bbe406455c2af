<?php

/** What all exceptions of this namespace are: to catch any of them. */

declare(strict_types=1);

namespace Hearth\Lambda;

interface LambdaException extends \Throwable
{
}
