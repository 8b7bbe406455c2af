<?php

final class Late1 extends ArrayObject implements JsonSerializable
{
    public static int $count = 0;

    public function jsonSerialize(): mixed
    {
        return ++self::$count;
    }
}
