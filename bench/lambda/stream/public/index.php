<?php

// Something at once, something at the end.
echo str_repeat('first ', 200);
flush();
usleep(300_000);
echo 'last';
