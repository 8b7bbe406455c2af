<?php
// Shows the session's state before it is started.
header('Content-Type: application/json');
echo json_encode(['id' => session_id(), 'status' => session_status(), 'session' => $_SESSION ?? null]);
