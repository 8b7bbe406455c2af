<?php
// Compares the functions of the extension with native/ext/hearth.stub.php, by reflection: names, types, defaults.
$code = file_get_contents(dirname(__DIR__, 2) . '/native/ext/hearth.stub.php');
eval('namespace Stub; ?>' . $code);

function describe(ReflectionFunction $function): string
{
    $parameters = array_map(
        static fn (ReflectionParameter $p): string => $p->getType() . ' $' . $p->getName()
            . ($p->isDefaultValueAvailable() ? ' = ' . json_encode($p->getDefaultValue()) : ''),
        $function->getParameters()
    );
    return '(' . implode(', ', $parameters) . '): ' . $function->getReturnType();
}

$count = 0;
foreach (get_defined_functions()['user'] as $name) {
    if (!str_starts_with($name, 'stub\\')) {
        continue;
    }
    $count++;
    $real = substr($name, 5);
    if (!function_exists($real)) {
        echo "$real is missing\n";
        continue;
    }
    $expected = describe(new ReflectionFunction($name));
    $found = describe(new ReflectionFunction($real));
    if ($expected !== $found) {
        echo "$real: the stub says $expected, the extension $found\n";
    }
}
foreach ((new ReflectionExtension('hearth'))->getFunctions() as $name => $function) {
    if (!function_exists("Stub\\$name")) {
        echo "$name is not in the stub\n";
    }
}
echo "$count functions compared\n";
