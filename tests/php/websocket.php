<?php
// Handles the events of a WebSocket by what the message says; writes each event to `events` in the application's folder.
$server = $_SERVER;
$event = $server['HEARTH_SOCKET_EVENT'];
$id = $server['HEARTH_SOCKET_ID'];
$note = fn (string $line) => file_put_contents(dirname(__DIR__) . '/events', "$line\n", FILE_APPEND | LOCK_EX);

if ($event === 'connect') {
    $note("connect $id");
    if (isset($_GET['refuse'])) {
        http_response_code((int) $_GET['refuse']);
        echo 'no';
        return;
    }
    header('X-From-PHP: yes');
    if (str_contains($server['HTTP_SEC_WEBSOCKET_PROTOCOL'] ?? '', 'talk')) {
        header('Sec-WebSocket-Protocol: talk');
    }
    if (isset($_GET['greet'])) {
        hearth_socket_send($id, 'hello');
    }
    return;
}
if ($event === 'close') {
    $note("close {$server['HEARTH_SOCKET_CODE']} {$server['HEARTH_SOCKET_REASON']}");
    return;
}

$message = file_get_contents('php://input');
$note('message ' . ($server['HEARTH_SOCKET_BINARY'] === '1' ? bin2hex($message) : substr($message, 0, 40)));
if ($server['HEARTH_SOCKET_BINARY'] === '1') {
    header('Content-Type: application/octet-stream');
    echo $message;
    return;
}
[$what, $more] = explode(' ', $message, 2) + [1 => ''];
switch ($what) {
    case 'who':
        echo implode(' ', [
            $event, $server['REQUEST_METHOD'], $server['REQUEST_URI'], $_GET['name'] ?? '', $_COOKIE['session'] ?? '',
            $server['HTTP_X_TEST'] ?? '', $server['HEARTH_SOCKET_PROTOCOL'] ?? '', $server['HEARTH_SOCKET_BINARY'],
        ]);
        break;
    case 'id':
        echo $id;
        break;
    case 'nothing':
        break;
    case 'push':
        hearth_socket_send($id, 'pushed 1');
        echo json_encode(hearth_socket_send($id, 'pushed 2'));
        break;
    case 'send':
        // To another connection: `send ID TEXT`.
        [$to, $text] = explode(' ', $more, 2);
        echo json_encode(hearth_socket_send($to, $text));
        break;
    case 'bytes':
        hearth_socket_send($more, "\xff\x00", true);
        break;
    case 'close':
        echo json_encode(hearth_socket_close($id, 4001, 'enough'));
        break;
    case 'close-other':
        echo json_encode(hearth_socket_close($more));
        break;
    case 'flood':
        // Until the server takes no more for a client that does not read.
        [$to, $size] = explode(' ', $more, 2);
        for ($sent = 0; $sent < 100000 && hearth_socket_send($to, str_repeat('x', (int) $size)); $sent++) {
        }
        echo $sent < 100000 ? 'full' : 'endless';
        break;
    case 'large':
        echo str_repeat('y', (int) $more);
        break;
    case 'wait':
        // Until the file is there.
        while (!file_exists(dirname(__DIR__) . "/$more")) {
            usleep(5000);
            clearstatcache();
        }
        echo "waited $more";
        break;
    case 'fail':
        http_response_code(500);
        echo 'secret';
        break;
    case 'throw':
        throw new RuntimeException('secret');
    case 'die':
        posix_kill(getmypid(), SIGKILL);
        break;
    case 'not-text':
        echo "\xff\xfe";
        break;
    case 'count':
        // Isolated models start each time with what the boot left.
        $GLOBALS['counted'] = ($GLOBALS['counted'] ?? 0) + 1;
        echo $GLOBALS['counted'];
        break;
    case 'errors':
        foreach ([fn () => hearth_socket_send($id, "\xff"), fn () => hearth_socket_close($id, 1005)] as $call) {
            try {
                $call();
            } catch (ValueError $error) {
                echo $error->getMessage(), ';';
            }
        }
        echo json_encode([hearth_socket_send('', 'x'), hearth_socket_send("a\r\nb", 'x'), hearth_socket_send(str_repeat('A', 22), 'x')]);
        break;
    default:
        echo $message;
}
