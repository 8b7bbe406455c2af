<?php

declare(strict_types=1);

namespace App\Http\Controllers;

use App\Chat\Live;
use App\Chat\Visitor;
use App\Events\Waved;
use Illuminate\Http\JsonResponse;
use Illuminate\Http\Request;
use Illuminate\Http\Response;
use Illuminate\Support\Facades\Broadcast;

final class BroadcastingController
{
    /** Decides whether a browser may subscribe to a private or presence channel. */
    public function auth(Request $request): JsonResponse
    {
        $request->setUserResolver(static fn (): ?Visitor => Visitor::of($request));

        return new JsonResponse(Broadcast::auth($request));
    }

    /** One visitor waves to another. */
    public function wave(Request $request): Response
    {
        $to = $request->validate(['to' => ['required', 'regex:/^[0-9a-f]{16}$/']])['to'];
        $from = Visitor::of($request) ?? abort(403);
        if (Live::is()) {
            broadcast(new Waved($to, $from->name));
        }

        return new Response('', 204);
    }
}
