<?php

declare(strict_types=1);

namespace App\Chat;

use Illuminate\Http\Request;

/** A visitor who has given a name: the chat has no accounts, a visitor lasts as long as the session. */
final class Visitor
{
    private function __construct(public readonly string $id, public readonly string $name)
    {
    }

    public static function of(Request $request): ?self
    {
        $name = (string) $request->session()->get('author', '');
        $id = (string) $request->session()->get('visitor', '');

        return $name === '' || $id === '' ? null : new self($id, $name);
    }

    public static function welcome(Request $request, string $name): void
    {
        $request->session()->put('author', $name);
        if (!$request->session()->has('visitor')) {
            $request->session()->put('visitor', bin2hex(random_bytes(8)));
        }
    }

    /** What presence channels know a member by. */
    public function getAuthIdentifierForBroadcasting(): string
    {
        return $this->id;
    }
}
