<?php
// Dies of ?signal, 9 by default; with ?after=output after some output.
if (($_GET['after'] ?? '') === 'output') {
    while (ob_get_level() > 0) {
        ob_end_flush();
    }
    echo 'before';
    flush();
}
posix_kill(getmypid(), (int) ($_GET['signal'] ?? 9));
sleep(10);
