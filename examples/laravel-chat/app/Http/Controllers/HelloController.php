<?php

declare(strict_types=1);

namespace App\Http\Controllers;

use Illuminate\Contracts\View\View;
use Illuminate\Http\JsonResponse;

final class HelloController
{
    public function page(): View
    {
        return view('hello', ['name' => 'world']);
    }

    public function json(): JsonResponse
    {
        return new JsonResponse(['message' => 'Hello, world!']);
    }
}
