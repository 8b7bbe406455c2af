<?php

$handle = require dirname(__DIR__) . '/app.php';
boot();
$handle();
