<?php

/** The broker's HTTP door: where it is, and what it must hear. */

declare(strict_types=1);

namespace Hearth\Egress;

final class Door
{
    /** Fields that the broker reads. Of a caller's own fields those of these names are dropped: it may be passing on what its clients sent. */
    public const CONTROL = 'Hearth-Control';
    public const ORIGIN = 'Hearth-Origin';
    public const PARENT = 'Hearth-Traceparent';
    public const STATE = 'Hearth-Tracestate';

    public const RESERVED = [self::CONTROL, self::ORIGIN, self::PARENT, self::STATE];

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

    /**
     * The trace context of the request being answered: header fields for the broker alone.
     *
     * @return array<string, string>
     */
    public static function trace(): array
    {
        $fields = [];
        $rules = [self::PARENT => ['HTTP_TRACEPARENT', '/^[0-9a-f-]{55}$/D'], self::STATE => ['HTTP_TRACESTATE', '/^[ -~]{1,512}$/D']];
        foreach ($rules as $field => [$variable, $form]) {
            $value = $_SERVER[$variable] ?? null;
            if (!is_string($value) || preg_match($form, $value) !== 1) {
                break;
            }
            $fields[$field] = $value;
        }
        return $fields;
    }

    /** Is this a field that no caller may send? */
    public static function reserves(string $field): bool
    {
        foreach (self::RESERVED as $reserved) {
            if (strcasecmp($field, $reserved) === 0) {
                return true;
            }
        }
        return false;
    }
}
