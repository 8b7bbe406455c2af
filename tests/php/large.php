<?php
// ?size=BYTES in one echo; its SHA-256 in a header.
$body = str_repeat(hash('sha256', 'hearth', true), intdiv((int) ($_GET['size'] ?? 1000000), 32));
header('Content-Type: application/octet-stream');
header('X-Sha256: ' . hash('sha256', $body));
echo $body;
