<?php
// The same for one request.
declare(strict_types=1);
require __DIR__ . '/phpt.php';
(Conformance\Phpt::ONCE)(Conformance\Phpt::next());
