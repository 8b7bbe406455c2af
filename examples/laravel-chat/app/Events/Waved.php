<?php

declare(strict_types=1);

namespace App\Events;

use Illuminate\Broadcasting\PrivateChannel;
use Illuminate\Contracts\Broadcasting\ShouldBroadcastNow;

/** An event for one visitor only. */
final class Waved implements ShouldBroadcastNow
{
    public function __construct(private readonly string $to, public readonly string $from)
    {
    }

    public function broadcastOn(): PrivateChannel
    {
        return new PrivateChannel("visitor.{$this->to}");
    }

    public function broadcastAs(): string
    {
        return 'waved';
    }
}
