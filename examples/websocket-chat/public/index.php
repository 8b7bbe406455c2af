<?php

declare(strict_types=1);

require __DIR__ . '/../src/room.php';

// In `snapshot` all above is done ahead; without Hearth this line does nothing.
if (function_exists('hearth_await_request')) {
    hearth_await_request();
}

$event = $_SERVER['HEARTH_SOCKET_EVENT'] ?? null;
if ($event === null) {
    require __DIR__ . '/../src/page.php';
    return;
}

$room = new Room();
$id = $_SERVER['HEARTH_SOCKET_ID'];
switch ($event) {
    case 'connect':
        $name = trim((string) ($_GET['name'] ?? ''));
        if ($name === '' || strlen($name) > 40) {
            http_response_code(403);
            break;
        }
        $room->enter($id, $name);
        $room->tell(['kind' => 'here', 'names' => array_values($room->members())]);
        break;
    case 'message':
        $text = trim((string) file_get_contents('php://input'));
        if ($text === '/quit') {
            hearth_socket_close($id, 4000, 'you asked for it');
        } elseif ($text === '/me') {
            // The answer goes to this client only.
            echo json_encode(['kind' => 'you', 'name' => $room->name($id), 'pid' => getmypid()]);
        } elseif ($text !== '') {
            $room->tell(['kind' => 'said', 'name' => $room->name($id), 'text' => $text]);
        }
        break;
    case 'close':
        $room->leave($id);
        $room->tell(['kind' => 'here', 'names' => array_values($room->members())]);
        break;
}
