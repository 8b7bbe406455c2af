<?php
// ?chunks=N pieces, each flushed, ?pause=MICROSECONDS between them, ?size=BYTES each.
header('Content-Type: text/plain');
header('X-Accel-Buffering: no');
while (ob_get_level() > 0) {
    ob_end_flush();
}
$size = (int) ($_GET['size'] ?? 0);
for ($i = 1; $i <= (int) ($_GET['chunks'] ?? 3); $i++) {
    echo "chunk $i\n", str_repeat('x', $size);
    flush();
    usleep((int) ($_GET['pause'] ?? 0));
}
