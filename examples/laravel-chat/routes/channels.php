<?php

declare(strict_types=1);

use App\Chat\Visitor;
use Illuminate\Broadcasting\Broadcasters\Broadcaster;

// Who may subscribe to which channel; public channels are open to all.
return static function (Broadcaster $broadcaster): void {
    $broadcaster->channel('room', static fn (Visitor $visitor): array => ['name' => $visitor->name]);
    $broadcaster->channel('visitor.{id}', static fn (Visitor $visitor, string $id): bool => $visitor->id === $id);
};
