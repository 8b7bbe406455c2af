<?php

declare(strict_types=1);

return ['hello' => 'Bonjour :name'];
