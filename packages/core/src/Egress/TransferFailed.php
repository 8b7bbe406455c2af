<?php

/** A call got no answer, or an incomplete one. The code is libcurl's (CURLE_*). */

declare(strict_types=1);

namespace Hearth\Egress;

final class TransferFailed extends \RuntimeException implements EgressException
{
    public static function of(int $errno, string $message, string $url): self
    {
        $shown = preg_replace('#//[^/@]*@#', '//', $url);
        return new self("cURL error {$errno}: {$message} for {$shown}", $errno);
    }
}
