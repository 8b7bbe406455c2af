<?php

declare(strict_types=1);

namespace App\Events;

use Illuminate\Broadcasting\Channel;
use Illuminate\Broadcasting\InteractsWithSockets;
use Illuminate\Contracts\Broadcasting\ShouldBroadcastNow;

/** A message for everyone on the page. */
final class MessageSaid implements ShouldBroadcastNow
{
    use InteractsWithSockets;

    /** @param array{id: int, author: string, text: string, said_at: string} $message */
    public function __construct(public readonly array $message)
    {
    }

    public function broadcastOn(): Channel
    {
        return new Channel('fireside');
    }

    public function broadcastAs(): string
    {
        return 'said';
    }
}
