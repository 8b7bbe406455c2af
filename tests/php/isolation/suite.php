<?php

declare(strict_types=1);

// Everything a request can leave behind: each row damages one thing and tells how it looks.
//   /?rows          the rows that this PHP can do, in order
//   /?look          how everything looks, row by row
//   /?do=ROW        damages it, then tells how that row looks; ?look as well: how everything looks
// One application for all models: worker.php runs it in a loop, public/index.php once for each request.

/** One thing that can be damaged. A look must not damage, and must give the same value each time nobody damaged anything. */
final class Row
{
    /** @var array<string, self> */
    private static array $all = [];

    private function __construct(
        public readonly string $title,
        public readonly Closure $damage,
        public readonly Closure $look,
        public readonly int $status,
    ) {
    }

    /**
     * @param string $title   what the manual calls it
     * @param int    $status  what a request with this damage is answered with
     * @param string $needs   a function or class without which there is no such row
     */
    public static function add(
        string $title,
        Closure $damage,
        Closure $look,
        int $status = 200,
        string $needs = '',
    ): void {
        if ($needs === '' || function_exists($needs) || class_exists($needs)) {
            self::$all[trim(preg_replace('/[^a-z0-9]+/', '-', strtolower($title)), '-')]
                = new self($title, $damage, $look, $status);
        }
    }

    /** @return array<string, self> */
    public static function all(): array
    {
        return self::$all;
    }
}

/** The application's own folder, for files. */
function place(string $file): string
{
    return __DIR__ . '/' . $file;
}

/** Whatever a request wants to keep beyond its end, so that PHP's own counting of references does not clean up. */
final class Kept
{
    /** @var array<mixed> */
    public static array $things = [];
}

foreach (['language', 'engine', 'process', 'streams', 'libraries', 'request', 'ends'] as $file) {
    require __DIR__ . "/rows/$file.php";
}

return static function (): void {
    if (isset($_GET['rows'])) {
        $answer = array_map(
            static fn (Row $row): array => ['title' => $row->title, 'status' => $row->status],
            Row::all()
        );
    } else {
        $answer = [];
        $rows = Row::all();
        if (isset($_GET['do'])) {
            ($rows[$_GET['do']]->damage)();
            $rows = isset($_GET['look']) ? $rows : [$_GET['do'] => $rows[$_GET['do']]];
        }
        foreach ($rows as $name => $row) {
            $answer[$name] = ($row->look)();
        }
        $answer['pid'] = getmypid();
    }
    while (ob_get_level() > 0) {
        ob_end_clean();
    }
    header('Content-Type: application/json');
    echo json_encode($answer, JSON_THROW_ON_ERROR);
};
