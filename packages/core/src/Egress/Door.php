<?php

/** The broker's HTTP door: where it is, and what it must hear. */

declare(strict_types=1);

namespace Hearth\Egress;

final class Door
{
    /** Fields that the broker reads. Of a caller's own fields those of these names are dropped: it may be passing on what its clients sent. */
    public const CONTROL = 'Hearth-Control';
    public const ORIGIN = 'Hearth-Origin';

    /** The URL that curl is given; the broker's socket and the request's target decide where the call goes. */
    public const URL = 'http://hearth/';

    public function __construct(public readonly string $socket, private readonly string $token)
    {
    }

    /** The value of Hearth-Control; null: it cannot be said in a field, so the call must be made directly. */
    public function control(Control $control): ?string
    {
        return $control->field($this->token);
    }

    /** Is this a field that no caller may send? */
    public static function reserves(string $field): bool
    {
        return strcasecmp($field, self::CONTROL) === 0 || strcasecmp($field, self::ORIGIN) === 0;
    }
}
