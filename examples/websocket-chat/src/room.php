<?php

declare(strict_types=1);

/** Who is in the room: a file for each connection, named by its id, with the name of its visitor. */
final class Room
{
    private readonly string $folder;

    public function __construct()
    {
        $base = getenv('CHAT_DIR') ?: sys_get_temp_dir() . '/hearth-websocket-chat';
        $this->folder = "$base/members";
        if (!is_dir($this->folder)) {
            @mkdir($this->folder, 0700, true);
        }
    }

    public function enter(string $id, string $name): void
    {
        // Renamed into place: half a name is never read.
        file_put_contents("$this->folder/.$id", $name);
        rename("$this->folder/.$id", "$this->folder/$id");
    }

    public function leave(string $id): ?string
    {
        $name = $this->name($id);
        @unlink("$this->folder/$id");

        return $name;
    }

    public function name(string $id): ?string
    {
        $name = @file_get_contents("$this->folder/$id");

        return $name === false ? null : $name;
    }

    /** @return array<string, string> names by id */
    public function members(): array
    {
        $all = [];
        foreach (glob("$this->folder/*") ?: [] as $file) {
            $name = @file_get_contents($file);
            if ($name !== false) {
                $all[basename($file)] = $name;
            }
        }

        return $all;
    }

    /** Sends to all; those that are gone are forgotten. @param array<string, mixed> $message */
    public function tell(array $message): void
    {
        $text = json_encode($message, JSON_THROW_ON_ERROR | JSON_UNESCAPED_UNICODE);
        foreach (array_keys($this->members()) as $id) {
            if (!hearth_socket_send((string) $id, $text)) {
                $this->leave((string) $id);
            }
        }
    }
}
