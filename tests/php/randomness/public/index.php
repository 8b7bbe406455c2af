<?php

$draw = require dirname(__DIR__) . '/draw.php';
echo json_encode(['pid' => getmypid()] + $draw(), JSON_THROW_ON_ERROR);
