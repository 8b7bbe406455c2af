<?php
// What is there of a session before anybody starts one.
header('Content-Type: application/json');
echo json_encode(['id' => session_id(), 'status' => session_status(), 'session' => $_SESSION ?? null]);
