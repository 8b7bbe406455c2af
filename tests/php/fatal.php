<?php
// ?after=flush: earlier output is sent already. ?where=shutdown|destructor|callback: the error happens at the end.
class Late
{
    public function __destruct()
    {
        undefined_function_in_destructor();
    }
}
echo 'before';
if (($_GET['after'] ?? '') === 'flush') {
    while (ob_get_level() > 0) {
        ob_end_flush();
    }
    flush();
}
switch ($_GET['where'] ?? '') {
    case 'shutdown':
        register_shutdown_function(static fn () => undefined_function_in_shutdown());
        break;
    case 'destructor':
        $late = new Late();
        break;
    case 'callback':
        header_register_callback(static fn () => undefined_function_in_callback());
        break;
    case 'output':
        ob_start(static fn () => undefined_function_in_output());
        echo 'buffered';
        break;
    case 'compile':
        eval('class {');
        break;
    case 'redeclare':
        eval('function strlen_twice() {} function strlen_twice() {}');
        break;
    default:
        undefined_function();
}
