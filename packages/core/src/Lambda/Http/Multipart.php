<?php

/**
 * Parses a body of `multipart/form-data` (RFC 7578) as PHP does for a web request. Names with brackets nest, a part without a name is skipped, and a
 * file's name loses its folder. If a body breaks off, its complete parts are used.
 */

declare(strict_types=1);

namespace Hearth\Lambda\Http;

/** @internal */
final class Multipart
{
    /** @var list<array{string, string}> names and values, in their order */
    private array $fields = [];

    /** @var list<array{string, array{name: string, type: string, content: string}}> names and files, in their order */
    private array $files = [];

    public function __construct(string $contentType, string $body)
    {
        if (preg_match('/;\s*boundary=(?:"([^"]+)"|([^;\s]+))/i', $contentType, $found) !== 1) {
            return;
        }
        $boundary = preg_quote($found[2] ?? $found[1], '/');
        // The first boundary may be the start of the body; each other one is a line (RFC 2046 section 5.1.1).
        $body = "\r\n{$body}";
        preg_match_all("/\\r\\n--{$boundary}(--)?[ \\t]*(?=\\r\\n|\\z)/", $body, $marks, PREG_OFFSET_CAPTURE | PREG_SET_ORDER);
        foreach ($marks as $i => $mark) {
            if (isset($mark[1]) || !isset($marks[$i + 1])) {
                return;
            }
            $from = $mark[0][1] + strlen($mark[0][0]);
            $this->add(substr($body, $from, $marks[$i + 1][0][1] - $from));
        }
    }

    /** @return array<mixed> as `$_POST` would have them */
    public function fields(): array
    {
        return self::nested($this->fields);
    }

    /**
     * @template File
     * @param callable(array{name: string, type: string, content: string}): File $make
     * @return array<mixed> each file as created by `$make`, nested by its name
     */
    public function files(callable $make): array
    {
        return self::nested(array_map(static fn (array $file): array => [$file[0], $make($file[1])], $this->files));
    }

    /** A part with the line end before its head. */
    private function add(string $part): void
    {
        $end = strpos($part, "\r\n\r\n");
        if ($end === false) {
            return;
        }
        $content = substr($part, $end + 4);
        $head = [];
        foreach (explode("\r\n", (string) preg_replace('/\r\n[ \t]+/', ' ', substr($part, 0, $end))) as $line) {
            [$name, $value] = explode(':', $line, 2) + [1 => ''];
            $head[strtolower(trim($name))] = trim($value);
        }
        $disposition = self::parameters($head['content-disposition'] ?? '');
        $name = $disposition['name'] ?? '';
        if ($name === '') {
            return;
        }
        if (!isset($disposition['filename'])) {
            $this->fields[] = [$name, $content];
            return;
        }
        $file = (string) preg_replace('/\A.*[\/\\\\]/s', '', $disposition['filename']);
        $this->files[] = [$name, ['name' => $file, 'type' => $head['content-type'] ?? '', 'content' => $content]];
    }

    /** @return array<string, string> of a field such as `form-data; name="a"; filename="b.txt"` */
    private static function parameters(string $field): array
    {
        preg_match_all('/;\s*([\w*-]+)\s*=\s*(?:"((?:\\\\"|[^"])*+)"|([^;\s]*))/', $field, $found, PREG_SET_ORDER | PREG_UNMATCHED_AS_NULL);
        $parameters = [];
        foreach ($found as [, $name, $quoted, $plain]) {
            $parameters[strtolower($name)] = $quoted === null ? (string) $plain : strtr($quoted, ['\\"' => '"', '\\\\' => '\\']);
        }
        return $parameters;
    }

    /**
     * Nests names with brackets as PHP does, by PHP's own parser, which gets numbers instead of the values.
     *
     * @param list<array{string, mixed}> $pairs
     * @return array<mixed>
     */
    private static function nested(array $pairs): array
    {
        $numbers = [];
        foreach ($pairs as $i => [$name]) {
            $numbers[] = urlencode($name) . "={$i}";
        }
        parse_str(implode('&', $numbers), $tree);
        array_walk_recursive($tree, static function (mixed &$leaf) use ($pairs): void {
            $leaf = $pairs[(int) $leaf][1];
        });
        return $tree;
    }
}
