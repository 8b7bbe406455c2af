<?php

declare(strict_types=1);

namespace Suite;

class Counter
{
    public static int $static = 0;
    public int $count = 0;
}
