<?php

/**
 * A limit of connections to each origin, for the calls of one pool or client: the broker keeps it. Over HTTP/2 calls share connections, so it holds none back;
 * over HTTP/1.1 as many calls as connections are under way.
 */

declare(strict_types=1);

namespace Hearth\Egress;

/** @internal */
final class Limit
{
    private static int $next = 0;
    private readonly int $number;

    public function __construct(public readonly int $connections)
    {
        $connections >= 1 || throw new InvalidCall('A limit of connections is one at least.');
        $this->number = self::$next++;
    }

    public function on(Control $control): Control
    {
        // By process: a child of a fork has a copy of this.
        return $control->with(['scope' => 'php-' . getmypid() . "-{$this->number}", 'connections' => $this->connections]);
    }
}
