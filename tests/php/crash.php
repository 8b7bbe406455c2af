<?php
// Dies of ?signal, 9 unless told; ?after=output: something was sent before.
if (($_GET['after'] ?? '') === 'output') {
    while (ob_get_level() > 0) {
        ob_end_flush();
    }
    echo 'before';
    flush();
}
posix_kill(getmypid(), (int) ($_GET['signal'] ?? 9));
sleep(10);
