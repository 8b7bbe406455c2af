<?php
// ?case=… one special header situation each.
switch ($_GET['case'] ?? '') {
    case 'reason':
        header("HTTP/1.1 418 I'm a teapot");
        break;
    case 'status':
        header('Status: 404 Not Here');
        break;
    case 'none':
        http_response_code(204);
        exit;
    case 'not-modified':
        header('ETag: "a"');
        http_response_code(304);
        exit;
    case 'redirect':
        header('Location: /elsewhere');
        exit;
    case 'replace':
        header('X-One: 1');
        header('X-One: 2');
        header('X-Many: 1', false);
        header('X-Many: 2', false);
        setcookie('a', '1');
        setcookie('b', '2', ['httponly' => true, 'samesite' => 'Lax']);
        header_remove('X-Powered-By');
        break;
    case 'type':
        header('Content-Type: text/plain');
        break;
    case 'no-type':
        ini_set('default_mimetype', '');
        break;
    case 'many':
        for ($i = 0; $i < 2000; $i++) {
            header("X-$i: $i");
        }
        break;
    case 'late':
        while (ob_get_level() > 0) {
            ob_end_flush();
        }
        echo 'sent ';
        flush();
        header('X-Late: 1');
        break;
    case 'callback':
        header_register_callback(static fn () => header('X-Callback: 1'));
        break;
}
echo 'body';
