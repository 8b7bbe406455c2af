<?php

register_shutdown_function(static function (): void {
    echo '[after the time]';
});
set_time_limit(1);
while (true) {
}
