<?php
// A worker script: each hearth_handle_request() runs a test.
declare(strict_types=1);
require __DIR__ . '/phpt.php';
while ((Conformance\Phpt::LOOP)(Conformance\Phpt::next())) {
}
