<?php

/** There is no answer, or not all of it. The code is libcurl's (CURLE_*). */

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
