<?php

/*
 * The page of bench/transports: the number of bytes of a POST, else `?bytes=N` bytes, 13 by default.
 */

declare(strict_types=1);

return static function (): void {
    echo $_SERVER['REQUEST_METHOD'] === 'POST'
        ? (string) strlen((string) file_get_contents('php://input'))
        : str_repeat('x', (int) ($_GET['bytes'] ?? 13));
};
