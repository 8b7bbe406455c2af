<?php

declare(strict_types=1);

namespace App\Http\Controllers;

use App\Chat\Messages;
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
        $request->session()->put('author', $said['author']);
        $message = $messages->add($said['author'], $said['text']);

        return $request->expectsJson()
            ? new JsonResponse(['message' => $message], 201)
            : redirect('/');
    }
}
