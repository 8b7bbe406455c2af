<?php

// Prints for each line of standard input (JSON: kind, wanted, output; the last two in base64) 1 if the output is the wanted one, else 0.
// Compares as run-tests.php does.

declare(strict_types=1);

const PLACEHOLDERS = [
    '%e' => '\/',
    '%s' => '[^\r\n]+',
    '%S' => '[^\r\n]*',
    '%a' => '.+',
    '%A' => '.*',
    '%w' => '\s*',
    '%i' => '[+-]?\d+',
    '%d' => '\d+',
    '%x' => '[0-9a-fA-F]+',
    '%f' => '[+-]?(?:\d+|(?=\.\d))(?:\.\d+)?(?:[Ee][+-]?\d+)?',
    '%c' => '.',
    '%0' => '\x00',
];

function pattern(string $wanted): string
{
    $pattern = '';
    foreach (preg_split('/%r(.*?)%r/s', $wanted, -1, PREG_SPLIT_DELIM_CAPTURE) as $at => $piece) {
        $pattern .= $at % 2 === 1 ? "($piece)" : strtr(preg_quote($piece, '/'), PLACEHOLDERS);
    }
    return $pattern;
}

ini_set('memory_limit', '-1');
ini_set('pcre.backtrack_limit', '10000000');
while (($line = fgets(STDIN)) !== false) {
    $asked = json_decode($line, true, 8, JSON_THROW_ON_ERROR);
    $wanted = str_replace("\r\n", "\n", trim(base64_decode($asked['wanted'])));
    $output = base64_decode($asked['output']);
    $same = match ($asked['kind']) {
        'EXPECT' => $wanted === $output,
        'EXPECTF' => @preg_match('/^' . pattern($wanted) . '$/s', $output) === 1,
        'EXPECTREGEX' => @preg_match('/^' . $wanted . '$/s', $output) === 1,
    };
    echo (int) $same, "\n";
}
