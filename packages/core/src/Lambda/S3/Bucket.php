<?php

/** A bucket's name. */

declare(strict_types=1);

namespace Hearth\Lambda\S3;

final class Bucket
{
    public function __construct(public readonly string $name, public readonly string $arn)
    {
    }

    public function getName(): string
    {
        return $this->name;
    }

    public function getArn(): string
    {
        return $this->arn;
    }
}
