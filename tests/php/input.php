<?php
// The raw body by length and hash, read in pieces; ?skip leaves it unread.
header('Content-Type: application/json');
if (isset($_GET['skip'])) {
    exit(json_encode(['skipped' => true]));
}
$hash = hash_init('sha256');
$length = 0;
$input = fopen('php://input', 'rb');
while (!feof($input)) {
    $piece = fread($input, 65536);
    $length += strlen($piece);
    hash_update($hash, $piece);
}
echo json_encode(['length' => $length, 'sha256' => hash_final($hash), 'post' => count($_POST), 'peak' => memory_get_peak_usage(true)]);
