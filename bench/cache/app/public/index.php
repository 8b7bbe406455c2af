<?php

declare(strict_types=1);

// A page of the size that the query says, valid for an hour.
header('Cache-Control: public, s-maxage=3600');
header('ETag: "a"');
echo 'Hello, world!', str_repeat(' word', intdiv(max(0, (int) ($_GET['size'] ?? 0) - 13), 5));
