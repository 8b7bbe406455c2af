<?php

require __DIR__ . '/phpt.php';
const PHPT_CALL = 'hearth_handle_request';
while ((PHPT_CALL)(Phpt::next()));
