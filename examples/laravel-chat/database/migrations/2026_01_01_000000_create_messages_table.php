<?php

declare(strict_types=1);

use Illuminate\Database\Migrations\Migration;
use Illuminate\Database\Schema\Blueprint;
use Illuminate\Support\Facades\DB;
use Illuminate\Support\Facades\Schema;

return new class extends Migration
{
    // SQLite changes its journal mode outside transactions only.
    public $withinTransaction = false;

    public function up(): void
    {
        // Readers and the writer do not wait for each other; this setting is stored in the file.
        DB::statement('PRAGMA journal_mode = WAL');
        Schema::create('messages', function (Blueprint $table): void {
            $table->id();
            $table->string('author', 40);
            $table->string('text', 500);
            $table->string('said_at', 20);
        });
    }

    public function down(): void
    {
        Schema::drop('messages');
    }
};
