<?php

$last = new class () {
    public function __destruct()
    {
        throw new RuntimeException('in a destructor');
    }
};
