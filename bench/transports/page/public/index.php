<?php

(require __DIR__ . '/answer.php')();
