<?php

set_exception_handler(static function (Throwable $thrown): void {
    http_response_code(503);
    echo '[handled ', $thrown->getMessage(), ']';
});
throw new DomainException('unexpected');
