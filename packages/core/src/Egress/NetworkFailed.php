<?php

/** PSR-18: there is no answer. The code is libcurl's (CURLE_*). */

declare(strict_types=1);

namespace Hearth\Egress;

use Psr\Http\Client\NetworkExceptionInterface;
use Psr\Http\Message\RequestInterface;

final class NetworkFailed extends \RuntimeException implements NetworkExceptionInterface, EgressException
{
    public function __construct(private readonly RequestInterface $request, TransferFailed $cause)
    {
        parent::__construct($cause->getMessage(), $cause->getCode(), $cause);
    }

    public function getRequest(): RequestInterface
    {
        return $this->request;
    }
}
