<?php

declare(strict_types=1);

namespace App\Jobs;

use Illuminate\Bus\Queueable;
use Illuminate\Contracts\Queue\ShouldQueue;
use Illuminate\Foundation\Bus\Dispatchable;

/** A job that says when it begins and when it is done. */
final class Note implements ShouldQueue
{
    use Dispatchable;
    use Queueable;

    public function __construct(public int $number)
    {
    }

    public function handle(): void
    {
        $say = fn (string $what) => file_put_contents(base_path('ran'), "{$what} {$this->number}\n", FILE_APPEND | LOCK_EX);
        $say('began');
        for ($until = hrtime(true) + 20_000_000; hrtime(true) < $until || file_exists(base_path('hold'));) {
            usleep(1000);
        }
        $say('done');
    }
}
