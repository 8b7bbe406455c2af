<?php

session_set_save_handler(new class () implements SessionHandlerInterface {
    public function open(string $path, string $name): bool
    {
        echo '[open]';
        return true;
    }

    public function close(): bool
    {
        echo '[close]';
        return true;
    }

    public function read(string $id): string
    {
        return '';
    }

    public function write(string $id, string $data): bool
    {
        echo "[write {$data}]";
        return true;
    }

    public function destroy(string $id): bool
    {
        return true;
    }

    public function gc(int $lifetime): int
    {
        return 0;
    }
});
session_start();
$_SESSION['a'] = 1;
