<?php

register_shutdown_function(static function (): void {
    echo '[after a parse error]';
});
eval('class Broken implements NotThere {}');
