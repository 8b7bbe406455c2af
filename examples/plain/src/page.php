<?php

declare(strict_types=1);

// One frame for all pages; outside public/, so no URL reaches it.

function e(string $text): string
{
    return htmlspecialchars($text, ENT_QUOTES | ENT_SUBSTITUTE, 'UTF-8');
}

function page(string $title, string $content): void
{
    header('Content-Type: text/html; charset=utf-8');
    echo '<!doctype html><html lang="en"><meta charset="utf-8">'
        . '<meta name="viewport" content="width=device-width, initial-scale=1">'
        . '<title>' . e($title) . '</title><link rel="stylesheet" href="/style.css">'
        . '<main><h1>' . e($title) . "</h1>\n{$content}\n</main></html>\n";
}
