<?php

/** A call to API Gateway for a connection failed; that the client is gone is no failure. */

declare(strict_types=1);

namespace Hearth\Lambda\ApiGateway;

use Hearth\Lambda\LambdaException;

final class ConnectionsFailed extends \RuntimeException implements LambdaException
{
}
