<?php
// Counts a client's visits; left open, so that the end of the request has to write it.
session_start();
$_SESSION['visits'] = ($_SESSION['visits'] ?? 0) + 1;
header('Content-Type: application/json');
echo json_encode(['id' => session_id(), 'visits' => $_SESSION['visits']]);
