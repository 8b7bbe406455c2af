<?php

$answer = static function (): void {
    echo 'Hello, world!';
};

while (frankenphp_handle_request($answer)) {
}
