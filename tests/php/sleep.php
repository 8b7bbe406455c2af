<?php
// Holds its worker for ?ms=MILLISECONDS.
usleep(1000 * (int) ($_GET['ms'] ?? 1000));
echo getmypid();
