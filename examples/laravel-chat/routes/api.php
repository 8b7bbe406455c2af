<?php

declare(strict_types=1);

use App\Http\Controllers\HelloController;
use Illuminate\Support\Facades\Route;

// No session, no cookies.
Route::get('/hello', [HelloController::class, 'page']);
Route::get('/json', [HelloController::class, 'json']);
