<?php

/**
 * The applications that Hearth looks up here (`realtime.lookup`). An application has the keys of a table `[realtime.apps.ID]` in hearth.toml:
 * `id`, `key`, `secret`, and any others that differ from the defaults, such as `connections`, `origins` and `client_events`.
 */

declare(strict_types=1);

namespace Hearth\Realtime;

interface Applications
{
    /**
     * Returns the application whose clients have this key; null: there is none. An implementation that cannot answer throws, and clients then
     * retry later.
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
