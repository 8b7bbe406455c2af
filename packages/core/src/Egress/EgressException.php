<?php

/** What all exceptions of this package are: to catch any of them. */

declare(strict_types=1);

namespace Hearth\Egress;

interface EgressException extends \Throwable
{
}
