<?php

// In place of the example's routes/api.php: a page with one query, without a session.

declare(strict_types=1);

use Illuminate\Support\Facades\DB;
use Illuminate\Support\Facades\Route;

Route::get('/thing', static function () {
    $thing = DB::selectOne('select amount from things where id = ?', [1]);
    return view('hello', ['name' => "amount $thing->amount;"]);
});
