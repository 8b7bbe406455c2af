<?php
// Holds its worker until there is a file ?gate=PATH.
while (!file_exists($_GET['gate'] ?? __FILE__)) {
    usleep(1000);
    clearstatcache();
}
echo 'open';
