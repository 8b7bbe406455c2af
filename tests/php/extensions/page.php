<?php
// docs/extensions.tsv, which run.php's results become, and docs/extensions.md, whose tables are made of it.
//
//     php -n page.php write SUITE RESULTS      puts the results in the place of the suite's rows, and writes the page
//     php -n page.php compare SUITE RESULTS    prints how many words are as committed and how many are not, and names these on standard error
//
// The tsv file has a line for each PHP version and extension: `php`, `extension`, `name`, `package`, `version`, a word for each model, `remark`,
// `advice`. `hearth check` reads the same file.

const MODELS = ['request', 'snapshot', 'fork', 'worker'];
const COLUMNS = ['php', 'extension', 'name', 'package', 'version', ...MODELS, 'remark', 'advice'];

$table = dirname(__DIR__, 3) . '/docs/extensions.tsv';
$page = dirname(__DIR__, 3) . '/docs/extensions.md';
[, $command, $suite, $results] = $argv;

/** @return list<array<string, string>> */
function read_table(string $file): array
{
    $rows = [];
    foreach (is_file($file) ? file($file, FILE_IGNORE_NEW_LINES) : [] as $line) {
        $cells = explode("\t", $line);
        $line[0] === '#' || $rows[] = array_combine(COLUMNS, array_pad($cells, count(COLUMNS), ''));
    }
    return $rows;
}

/** The rows of a run, one for each extension. @return list<array<string, string>> */
function read_results(string $file): array
{
    $advice = (require __DIR__ . '/advice.php')['advice'];
    $rows = [];
    $php = '';
    foreach (file($file, FILE_IGNORE_NEW_LINES) as $line) {
        $cells = explode("\t", $line);
        if ($cells[0] === '# PHP') {
            $php = implode('.', array_slice(explode('.', $cells[1]), 0, 2));
            continue;
        }
        [$extension, $name, $package, $version, $model, $word, $remark] = array_pad($cells, 7, '');
        $rows[$extension] ??= ['php' => $php, 'extension' => $extension, 'name' => $name, 'package' => $package, 'version' => $version] +
            array_fill_keys(MODELS, '') + ['remark' => '', 'advice' => $advice[$extension] ?? ''];
        $rows[$extension][$model] = $word;
        if ($remark !== '' && !str_contains($rows[$extension]['remark'], stable($remark))) {
            $rows[$extension]['remark'] .= ($rows[$extension]['remark'] === '' ? '' : '; ') . "$model: " . stable($remark);
        }
    }
    return array_values($rows);
}

/** A remark without what differs from run to run. */
function stable(string $remark): string
{
    return preg_replace(['/0x[0-9a-f]+|\b[0-9a-f]{8,}\b/', '/\bpid[= ]\d+/', '~/tmp/hearth-extensions-~'], ['…', 'pid …', ''], $remark);
}

/** @param list<array<string, string>> $rows */
function write_tables(string $page, array $rows): void
{
    $words = ['yes' => 'yes', 'loads not' => 'does not load', 'late yes' => 'yes, not at boot', 'late retires' => 'a fork for each request, not at boot',
        'retires' => 'a fork for each request', 'boot retires' => 'yes, at boot a fork for each request', 'shared' => 'yes, shared by design', 'blind' => 'sees no requests', 'fpm' => 'as under php-fpm'];
    $text = '';
    $notes = require __DIR__ . '/advice.php';
    foreach (array_unique(array_column($rows, 'php')) as $php) {
        $of = array_values(array_filter($rows, static fn ($row) => $row['php'] === $php));
        $plain = array_filter($of, static fn ($row) => array_unique(array_map(static fn ($model) => $row[$model], MODELS)) === ['yes'] && $row['advice'] === '');
        $text .= "## PHP $php\n\n`yes` in all four models: " . implode(', ', array_map(static fn ($row) => "`{$row['extension']}`", $plain)) . ".\n\n" .
            "The others:\n\n| extension | version | " . implode(' | ', array_map(static fn ($model) => "`$model`", MODELS)) . " | see |\n|---|---|---|---|---|---|---|\n";
        foreach ($of as $row) {
            if (in_array($row, $plain, true)) {
                continue;
            }
            $cells = array_map(static fn ($model) => $words[$row[$model]] ?? $row[$model], MODELS);
            $see = array_filter([
                $row['advice'] === '' ? '' : "[{$row['extension']}](#" . strtolower($row['extension']) . ')',
                in_array('fpm', $row, true) ? 'stays: ' . ($notes['stays'][$row['extension']] ?? $row['remark']) : '',
            ]);
            $see = implode('; ', $see);
            $text .= "| `{$row['extension']}` | {$row['version']} | " . implode(' | ', $cells) . " | $see |\n";
        }
        $text .= "\n<details><summary>Packages and versions of PHP $php</summary>\n\n| extension | package | version |\n|---|---|---|\n";
        foreach ($of as $row) {
            $text .= "| `{$row['extension']}` | {$row['package']} | {$row['version']} |\n";
        }
        $text .= "\n</details>\n\n";
    }
    $text .= "## What to do\n";
    foreach ($notes['advice'] as $extension => $advice) {
        in_array($extension, array_column($rows, 'extension'), true) && $text .= "\n### $extension\n$advice\n";
    }
    $whole = file_get_contents($page);
    $whole = preg_replace('/(<!-- tables: .*? -->\n).*(\n<!-- end of tables -->)/s', '${1}' . addcslashes($text, '\\$') . '$2', $whole);
    file_put_contents($page, $whole);
}

$new = read_results($results);
$old = read_table($table);
if ($command === 'write') {
    $versions = array_column($new, 'php');
    $names = array_column($new, 'extension');
    // Those of no package are in a run only if it was given them.
    $kept = array_filter($old, static fn ($row) => !in_array($row['php'], $versions, true) ||
        $row['package'] === 'own build' && !in_array($row['extension'], $names, true));
    $rows = array_merge($kept, $new);
    usort($rows, static fn ($a, $b) => [$a['php'], $a['extension']] <=> [$b['php'], $b['extension']]);
    $text = '# ' . implode("\t", COLUMNS) . "\n";
    foreach ($rows as $row) {
        $text .= rtrim(implode("\t", array_map(static fn ($column) => $row[$column], COLUMNS)), "\t") . "\n";
    }
    file_put_contents($table, $text);
    write_tables($page, $rows);
    exit(0);
}
$committed = [];
foreach ($old as $row) {
    $committed["{$row['php']} {$row['extension']}"] = $row;
}
$passed = 0;
$failed = 0;
if (!in_array($new[0]['php'] ?? '', array_column($old, 'php'), true)) {
    fwrite(STDERR, "    the table has nothing of this PHP: only the page is compared\n");
    $new = [];
}
foreach ($new as $row) {
    $then = $committed["{$row['php']} {$row['extension']}"] ?? null;
    foreach (MODELS as $model) {
        if ($then !== null && $then[$model] === $row[$model]) {
            $passed++;
            continue;
        }
        $failed++;
        fwrite(STDERR, "    FAILED  {$row['extension']} of PHP {$row['php']} in $model: `{$row[$model]}`, committed: `" . ($then[$model] ?? 'nothing') . "` ({$row['remark']})\n");
    }
}
foreach ($suite === 'quick' || $new === [] ? [] : $old as $row) {
    if ($row['package'] !== 'own build' && $row['php'] === $new[0]['php'] && !in_array($row['extension'], array_column($new, 'extension'), true)) {
        $failed++;
        fwrite(STDERR, "    FAILED  {$row['extension']} of PHP {$row['php']} is in the table, and Debian has it no more\n");
    }
}
// The page is what the table makes of it.
$before = file_get_contents($page);
$copy = tempnam(sys_get_temp_dir(), 'page');
file_put_contents($copy, $before);
write_tables($copy, $old);
$same = file_get_contents($copy) === $before;
unlink($copy);
$same ? $passed++ : $failed++;
$same || fwrite(STDERR, "    FAILED  docs/extensions.md is not what docs/extensions.tsv says: run UPDATE=1 scripts/test-extensions\n");
echo "$passed $failed\n";
