<?php

http_response_code(404);
setcookie('request', 'two', ['path' => '/', 'httponly' => true]);
header('Location: /elsewhere', true, 302);
header('Content-Type: text/plain');
print_r(headers_list());
