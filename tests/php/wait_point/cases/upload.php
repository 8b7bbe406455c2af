<?php

$from = $_FILES['file']['tmp_name'];
$to = sys_get_temp_dir() . '/' . uniqid('moved', true);
echo json_encode([is_uploaded_file($from), move_uploaded_file($from, $to), file_get_contents($to), is_uploaded_file(__FILE__)], JSON_THROW_ON_ERROR);
unlink($to);
