<?php

/**
 * The applications that Hearth asks this one for (`realtime.lookup`). What is told of one has the names of a table `[realtime.apps.ID]` of
 * hearth.toml: `id`, `key`, `secret` and, where it is to be otherwise than usual, `connections`, `origins`, `client_events` and so on.
 */

declare(strict_types=1);

namespace Hearth\Realtime;

interface Applications
{
    /**
     * The application whose clients have this key; null: there is none. An implementation that cannot answer throws: clients then come back later.
     *
     * @return ?array<string, mixed>
     */
    public function withKey(string $key): ?array;

    /**
     * The application with this id.
     *
     * @return ?array<string, mixed>
     */
    public function withId(string $id): ?array;
}
