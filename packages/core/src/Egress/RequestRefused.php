<?php

/** PSR-18: the request is invalid and cannot be sent. */

declare(strict_types=1);

namespace Hearth\Egress;

use Psr\Http\Client\RequestExceptionInterface;
use Psr\Http\Message\RequestInterface;

final class RequestRefused extends \RuntimeException implements RequestExceptionInterface, EgressException
{
    public function __construct(private readonly RequestInterface $request, InvalidCall $cause)
    {
        parent::__construct($cause->getMessage(), $cause->getCode(), $cause);
    }

    public function getRequest(): RequestInterface
    {
        return $this->request;
    }
}
