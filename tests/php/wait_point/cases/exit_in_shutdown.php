<?php

register_shutdown_function(static function (): void {
    echo '[exits]';
    register_shutdown_function(static function (): void {
        echo '[not reached]';
    });
    exit(3);
});
