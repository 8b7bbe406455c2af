<?php

/** Reads the structured fields (RFC 8941) that the broker writes: dictionaries and one item with
 * parameters. Invalid text gives an empty result. */

declare(strict_types=1);

namespace Hearth\Egress;

/** @internal */
final class StructuredField
{
    /**
     * `a=1, b="x"`: keys and bare values; parameters of members are not kept.
     *
     * @return array<string, string|int|float|bool>
     */
    public static function dictionary(string $field): array
    {
        return self::pairs($field, ',') ?? [];
    }

    /**
     * `word; a=1; b="x"`: the word is under the empty key.
     *
     * @return array<string, string|int|float|bool>
     */
    public static function item(string $field): array
    {
        $at = strcspn($field, ';');
        $word = trim(substr($field, 0, $at));
        if (preg_match('/^[A-Za-z*][A-Za-z0-9:\/!#$%&\'*+.^_`|~-]*$/D', $word) !== 1) {
            return [];
        }
        $parameters = self::pairs(substr($field, $at + 1), ';');
        return $parameters === null ? [] : ['' => $word] + $parameters;
    }

    /** @return ?array<string, string|int|float|bool> */
    private static function pairs(string $text, string $separator): ?array
    {
        $value = '"(?:[^"\\\\]|\\\\["\\\\])*"|\?[01]|-?[0-9]+(?:\.[0-9]+)?|[A-Za-z*][^\s;,"]*';
        $pairs = [];
        $rest = trim($text, " \t");
        while ($rest !== '') {
            if (preg_match("/^([a-z*][a-z0-9_.*-]*)(?:=({$value}))?[ \t]*/", $rest, $found) !== 1) {
                return null;
            }
            $pairs[$found[1]] = self::value($found[2] ?? '?1');
            $rest = substr($rest, strlen($found[0]));
            if ($rest === '') {
                break;
            }
            if ($rest[0] !== $separator) {
                return null;
            }
            $rest = ltrim(substr($rest, 1), " \t");
        }
        return $pairs;
    }

    private static function value(string $text): string|int|float|bool
    {
        return match (true) {
            $text[0] === '"' => stripslashes(substr($text, 1, -1)),
            $text[0] === '?' => $text === '?1',
            preg_match('/^-?[0-9]+$/D', $text) === 1 => (int) $text,
            is_numeric($text) => (float) $text,
            default => $text,
        };
    }
}
