<?php

declare(strict_types=1);

// Everything a request can leave behind: each row damages one thing and tells how it looks.
//   /?rows          the rows that this PHP can do, in order
//   /?look=         how everything looks, row by row
//   /?look=ROW      how that row looks
//   /?do=ROW        damages it, then tells how that row looks
// One application for all models: worker.php runs it in a loop, public/index.php once for each request.

/** One thing that can be damaged. A look must not damage, and must give the same value as long as nothing was damaged. */
final class Row
{
    /** The part of the manual's table that rows belong to from now on. */
    public static string $current = '';
    /** @var array<string, self> */
    private static array $all = [];

    private function __construct(
        public readonly string $part,
        public readonly string $title,
        public readonly Closure $damage,
        public readonly Closure $look,
        public readonly int $status,
        public readonly bool $silent,
        public readonly bool $able,
    ) {
    }

    /**
     * @param string $title  what the manual calls it
     * @param int    $status what a request with this damage is answered with
     * @param bool   $silent a look takes away what it finds, so there must be none in the request that does the damage
     * @param bool   $able   this PHP can do it
     */
    public static function add(
        string $title,
        Closure $damage,
        Closure $look,
        int $status = 200,
        bool $silent = false,
        bool $able = true,
    ): void {
        self::$all[trim(preg_replace('/[^a-z0-9]+/', '-', strtolower($title)), '-')]
            = new self(self::$current, $title, $damage, $look, $status, $silent, $able);
    }

    /** @return array<string, self> */
    public static function all(): array
    {
        return self::$all;
    }

    /** @return array<string, mixed> */
    public function describe(): array
    {
        return [
            'part' => $this->part, 'title' => $this->title, 'status' => $this->status, 'silent' => $this->silent, 'able' => $this->able,
        ];
    }
}

/** The application's own folder, for files. */
function place(string $file): string
{
    return __DIR__ . '/' . $file;
}

/** Waits briefly until a condition is true, because a process that has just ended may still exist. */
function eventually(Closure $is): bool
{
    for ($i = 0; $i < 200 && isset($_GET['patient']); $i++) {
        if ($is()) {
            return true;
        }
        usleep(10_000);
    }
    return $is();
}

/** Keeps values beyond a request's end, so that PHP's reference counting does not free them. */
final class Kept
{
    /** @var array<mixed> */
    public static array $things = [];
}

foreach (['language', 'engine', 'request', 'libraries', 'process', 'streams', 'ends'] as $file) {
    require __DIR__ . "/rows/$file.php";
}

return static function (): void {
    $rows = Row::all();
    $answer = [];
    if (isset($_GET['rows'])) {
        foreach ($rows as $name => $row) {
            $answer[] = ['name' => $name] + $row->describe();
        }
    } else {
        $rows = array_filter($rows, static fn (Row $row): bool => $row->able);
        if (isset($_GET['do'])) {
            $row = $rows[$_GET['do']];
            ($row->damage)();
            $rows = $row->silent ? [] : [$_GET['do'] => $row];
        } elseif (($_GET['look'] ?? null) !== '') {
            // an empty answer for an empty request, as in a rehearsal
            $rows = array_intersect_key($rows, [$_GET['look'] ?? '' => true]);
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
