<?php

(require dirname(__DIR__) . '/suite.php')();
