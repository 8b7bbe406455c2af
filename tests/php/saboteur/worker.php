<?php
// Requests that count in a C library's variable: the answer is always 1, if memory is restored. `?hide` keeps the engine from restoring it.

declare(strict_types=1);

$library = FFI::cdef(
    'int saboteur_boot(void); int saboteur_count(void); int saboteur_hide(void);',
    __DIR__ . '/saboteur.so',
);
if ($library->saboteur_boot() !== 0) {
    fwrite(STDERR, "the worker program has no table of symbols\n");
    exit(1);
}
while (
    hearth_handle_request(static function () use ($library): void {
        if (isset($_GET['hide']) && $library->saboteur_hide() !== 1) {
            http_response_code(500);
        }
        echo $library->saboteur_count();
    })
) {
}
