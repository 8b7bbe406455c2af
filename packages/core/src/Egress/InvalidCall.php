<?php

/** A call that cannot be made as it is asked for. */

declare(strict_types=1);

namespace Hearth\Egress;

final class InvalidCall extends \InvalidArgumentException implements EgressException
{
}
