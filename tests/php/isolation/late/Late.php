<?php

declare(strict_types=1);

trait LateTrait
{
    public static int $count = 0;
}

interface LateInterface
{
}

/** Loaded when a request first needs it. */
final class Late extends ArrayObject implements LateInterface
{
    use LateTrait;

    public function visit(): int
    {
        static $visits = 0;
        self::$count++;
        return ++$visits;
    }
}
