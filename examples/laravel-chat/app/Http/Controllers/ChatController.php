<?php

declare(strict_types=1);

namespace App\Http\Controllers;

use App\Chat\Live;
use App\Chat\Messages;
use App\Chat\Visitor;
use App\Events\MessageSaid;
use Illuminate\Contracts\View\View;
use Illuminate\Http\JsonResponse;
use Illuminate\Http\RedirectResponse;
use Illuminate\Http\Request;

final class ChatController
{
    public function page(Request $request, Messages $messages): View
    {
        return view('chat', [
            'author' => $request->session()->get('author', ''),
            'visitor' => Visitor::of($request)?->id,
            'key' => Live::is() ? config('broadcasting.connections.hearth.key') : null,
            'messages' => $messages->latest(),
        ]);
    }

    public function index(Request $request, Messages $messages): JsonResponse
    {
        return new JsonResponse(['messages' => $messages->after((int) $request->query('after', '0'))]);
    }

    public function store(Request $request, Messages $messages): JsonResponse|RedirectResponse
    {
        $said = $request->validate([
            'author' => ['required', 'string', 'max:40'],
            'text' => ['required', 'string', 'max:500'],
        ]);
        Visitor::welcome($request, $said['author']);
        $message = $messages->add($said['author'], $said['text']);
        if (Live::is()) {
            broadcast(new MessageSaid($message))->toOthers();
        }

        return $request->expectsJson()
            ? new JsonResponse(['message' => $message, 'visitor' => $request->session()->get('visitor')], 201)
            : redirect('/');
    }
}
