<?php
header('Link: </style.css>; rel=preload; as=style');
header('Link: </app.js>; rel=preload; as=script', false);
$sent = headers_send(103);
header_remove('Link');
header('X-Sent: ' . $sent);
echo 'final';
