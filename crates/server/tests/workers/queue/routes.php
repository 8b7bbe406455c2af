<?php

use App\Jobs\Note;
use Illuminate\Support\Facades\Route;

Route::get('/', fn () => 'hello');
Route::get('/push/{number}', function (int $number) {
    Note::dispatch($number);
    return 'pushed';
});
