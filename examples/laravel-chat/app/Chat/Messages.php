<?php

declare(strict_types=1);

namespace App\Chat;

use Illuminate\Database\ConnectionInterface;

/** The messages, oldest first. Rows are plain arrays: id, author, text, said_at (ISO 8601, UTC). */
final class Messages
{
    private const SHOWN = 50;

    public function __construct(private readonly ConnectionInterface $database)
    {
    }

    /** @return list<array{id: int, author: string, text: string, said_at: string}> */
    public function latest(): array
    {
        $rows = $this->database->table('messages')->orderByDesc('id')->limit(self::SHOWN)->get();

        return array_reverse($rows->map(self::row(...))->all());
    }

    /** @return list<array{id: int, author: string, text: string, said_at: string}> */
    public function after(int $id): array
    {
        $rows = $this->database->table('messages')->where('id', '>', $id)->orderBy('id')->limit(self::SHOWN)->get();

        return $rows->map(self::row(...))->all();
    }

    /** @return array{id: int, author: string, text: string, said_at: string} */
    public function add(string $author, string $text): array
    {
        $message = ['author' => $author, 'text' => $text, 'said_at' => gmdate('Y-m-d\TH:i:s\Z')];

        return ['id' => $this->database->table('messages')->insertGetId($message)] + $message;
    }

    /** @return array{id: int, author: string, text: string, said_at: string} */
    private static function row(object $row): array
    {
        return ['id' => (int) $row->id, 'author' => $row->author, 'text' => $row->text, 'said_at' => $row->said_at];
    }
}
