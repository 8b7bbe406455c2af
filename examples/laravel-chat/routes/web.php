<?php

declare(strict_types=1);

use App\Http\Controllers\BroadcastingController;
use App\Http\Controllers\ChatController;
use Illuminate\Support\Facades\Route;

Route::get('/', [ChatController::class, 'page']);
Route::get('/messages', [ChatController::class, 'index']);
Route::post('/messages', [ChatController::class, 'store']);
Route::post('/broadcasting/auth', [BroadcastingController::class, 'auth']);
Route::post('/waves', [BroadcastingController::class, 'wave']);
