<?php
// ?look shows state left by earlier requests, ?change changes all of it first; ?fail then ends with a fatal error.
(require __DIR__ . '/state_of_process.php')(isset($_GET['change']));
if (isset($_GET['fail'])) {
    restore_exception_handler();
    undefined_function();
}
