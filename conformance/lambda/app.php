<?php

declare(strict_types=1);

// The application behind both emulators: it shows its request, or fails as requested.

$query = $_GET + ['do' => 'show'];
switch ($query['do']) {
    case 'exit':
        echo 'gone early';
        exit(3);
    case 'crash':
        posix_kill(getmypid(), 9);
        usleep(10_000_000);
        break;
    case 'throw':
        throw new RuntimeException('as asked');
    case 'sleep':
        // One clock for all processes.
        $began = hrtime(true);
        usleep((int) ((float) $query['seconds'] * 1e6));
        echo json_encode(['pid' => getmypid(), 'began' => $began, 'ended' => hrtime(true)]);
        break;
    case 'large':
        echo str_repeat('x', 7 * 1024 * 1024);
        break;
    case 'binary':
        header('Content-Type: image/png');
        setcookie('a', '1');
        setcookie('b', '2');
        echo "\x89PNG\0\xff";
        break;
    case 'nothing':
        http_response_code(204);
        break;
    default:
        header('Content-Type: application/json');
        header('X-Twice: 1');
        header('X-Twice: 2', false);
        echo json_encode([
            'method' => $_SERVER['REQUEST_METHOD'],
            'uri' => $_SERVER['REQUEST_URI'],
            'get' => $_GET,
            'post' => $_POST,
            'cookies' => $_COOKIE,
            'body' => base64_encode(file_get_contents('php://input')),
            'host' => $_SERVER['HTTP_HOST'] ?? null,
            'remote' => $_SERVER['REMOTE_ADDR'],
            'https' => $_SERVER['HTTPS'] ?? null,
            'context' => array_keys(json_decode($_SERVER['LAMBDA_INVOCATION_CONTEXT'], true)),
            'request context' => json_decode($_SERVER['LAMBDA_REQUEST_CONTEXT'], true),
        ]);
}
