<?php

$local = 'kept in the frame';
if (function_exists('hearth_await_request')) {
    hearth_await_request();
}
echo $local;
