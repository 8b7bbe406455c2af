<?php

/*
 * The page of bench/transports: the number of bytes of a POST, else `?bytes=N` bytes, 13 by default.
 */
return static function (): void {
    echo $_SERVER['REQUEST_METHOD'] === 'POST'
        ? strlen(file_get_contents('php://input'))
        : str_repeat('x', (int) ($_GET['bytes'] ?? 13));
};
