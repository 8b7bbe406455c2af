<?php

/** An attribute that a notification carries beside its text. */

declare(strict_types=1);

namespace Hearth\Lambda\Sns;

final class MessageAttribute
{
    /**
     * @internal made by its record
     * @param array<mixed> $attribute
     */
    public function __construct(private readonly array $attribute)
    {
    }

    /** String, String.Array, Number or Binary. */
    public function getType(): string
    {
        return (string) ($this->attribute['Type'] ?? '');
    }

    /** The value as SNS sends it: Binary in base64, an array as JSON. */
    public function getValue(): string
    {
        return (string) ($this->attribute['Value'] ?? '');
    }

    /** @return array<mixed> */
    public function toArray(): array
    {
        return $this->attribute;
    }
}
