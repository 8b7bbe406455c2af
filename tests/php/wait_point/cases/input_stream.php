<?php

$input = fopen('php://input', 'rb');
echo strlen(stream_get_contents($input)), ' ', md5((string) file_get_contents('php://input')), ' ', count($_POST);
