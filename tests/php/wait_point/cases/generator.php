<?php

$generator = (static function (): Generator {
    try {
        yield 1;
        yield 2;
    } finally {
        echo '[generator ends]';
    }
})();
echo $generator->current();
$fiber = new Fiber(static function (): void {
    try {
        Fiber::suspend();
    } finally {
        echo '[fiber ends]';
    }
});
$fiber->start();
