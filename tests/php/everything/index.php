<?php
(require __DIR__ . '/dump.php')();
