<?php
// ext/filter is used after the script has changed $_SERVER: it has the client's values, and keeps the changes.
$given = $_SERVER['QUERY_STRING'];
$_SERVER['REQUEST_METHOD'] = 'CHANGED';
unset($_SERVER['QUERY_STRING']);
echo implode(' ', [
    $given,
    filter_input(INPUT_SERVER, 'REQUEST_METHOD'),
    filter_input(INPUT_SERVER, 'QUERY_STRING'),
    var_export(filter_has_var(INPUT_SERVER, 'PHP_SELF'), true),
    var_export(filter_input(INPUT_SERVER, 'PATH'), true),
    $_SERVER['REQUEST_METHOD'],
    var_export(isset($_SERVER['QUERY_STRING']), true),
    count(filter_input_array(INPUT_SERVER)) > 8 ? 'all' : 'few',
]);
