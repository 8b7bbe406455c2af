<?php

require __DIR__ . '/phpt.php';
const PHPT_CALL = 'call_user_func';
(PHPT_CALL)(Phpt::next());
