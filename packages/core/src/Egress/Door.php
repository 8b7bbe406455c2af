<?php

/** The previous name of {@see Listener}, for programs that use it. Deprecated: use Listener. */

declare(strict_types=1);

namespace Hearth\Egress;

// That file declares the old name, too: a parameter of the old type accepts a Listener without having been loaded.
class_exists(Listener::class);
