<?php

/** A call with invalid options. */

declare(strict_types=1);

namespace Hearth\Egress;

final class InvalidCall extends \InvalidArgumentException implements EgressException
{
}
