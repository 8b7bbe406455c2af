<?php

/**
 * DynamoDB's typed values (`{"N": "7"}`) as PHP's. Promises: no number loses a digit. One that neither an int nor a float holds exactly stays the string
 * that DynamoDB wrote (it has up to 38 digits).
 */

declare(strict_types=1);

namespace Hearth\Lambda\DynamoDb;

use Hearth\Lambda\InvalidEvent;

final class AttributeValue
{
    /**
     * @param mixed $value an array with one key, which is the type
     * @return mixed S: string, N: int, float or string, B: the bytes, BOOL, NULL, M: array, L: list, SS/NS/BS: list
     */
    public static function decode(mixed $value): mixed
    {
        $type = is_array($value) && count($value) === 1 ? array_key_first($value) : null;
        $inner = $type === null ? null : $value[$type];
        return match (true) {
            $type === 'S' && is_string($inner) => $inner,
            $type === 'N' && is_string($inner) => self::number($inner),
            $type === 'B' && is_string($inner) => self::bytes($inner),
            $type === 'BOOL' && is_bool($inner) => $inner,
            $type === 'NULL' => null,
            $type === 'M' && is_array($inner) => array_map(self::decode(...), $inner),
            $type === 'L' && is_array($inner) => array_map(self::decode(...), array_values($inner)),
            $type === 'SS' && is_array($inner) => array_map(strval(...), array_values($inner)),
            $type === 'NS' && is_array($inner) => array_map(self::number(...), array_values($inner)),
            $type === 'BS' && is_array($inner) => array_map(self::bytes(...), array_values($inner)),
            default => throw InvalidEvent::for('a value of DynamoDB', $value),
        };
    }

    private static function number(string $text): int|float|string
    {
        $int = filter_var($text, FILTER_VALIDATE_INT);
        if ($int !== false) {
            return $int;
        }
        $float = (float) $text;
        // PHP prints the shortest digits that make the same float: the same number if no digit was lost.
        return is_finite($float) && self::digits($text) === self::digits(var_export($float, true)) ? $float : $text;
    }

    /** Digits and exponent, in one way of writing. */
    private static function digits(string $number): string
    {
        if (preg_match('/\A([+-]?)(\d*)\.?(\d*)(?:[eE]([+-]?\d+))?\z/', $number, $part) !== 1) {
            return $number;
        }
        $exponent = (int) ($part[4] ?? 0) - strlen($part[3]);
        $digits = ltrim($part[2] . $part[3], '0');
        $kept = rtrim($digits, '0');
        $exponent += strlen($digits) - strlen($kept);
        return $kept === '' ? '0' : ($part[1] === '-' ? '-' : '') . "{$kept}e{$exponent}";
    }

    private static function bytes(string $base64): string
    {
        $bytes = base64_decode($base64, true);
        return $bytes !== false ? $bytes : throw InvalidEvent::for('base64', $base64);
    }
}
