<!doctype html>
<html lang="en">
<head>
    <meta charset="utf-8">
    <meta name="viewport" content="width=device-width, initial-scale=1">
    <meta name="csrf-token" content="{{ csrf_token() }}">
    <title>{{ config('app.name') }}</title>
    <link rel="icon" href="/flame.svg" type="image/svg+xml">
    <link rel="stylesheet" href="/chat.css">
    @if ($key !== null)
        <meta name="channels" content="{{ $key }}" data-visitor="{{ $visitor }}">
        <script src="/vendor/pusher.min.js" defer></script>
        <script src="/vendor/echo.iife.js" defer></script>
    @endif
    <script src="/chat.js" type="module"></script>
</head>
<body>
<header>
    <img src="/flame.svg" alt="" width="44" height="44">
    <div>
        <h1>{{ config('app.name') }}</h1>
        <p>Come in, sit down. PHP {{ PHP_VERSION }} and Laravel {{ app()->version() }}, kept warm by Hearth.</p>
    </div>
</header>

<ul id="here" aria-label="Who is here" hidden></ul>

<main>
    <ol id="messages" aria-live="polite" data-last="{{ $messages === [] ? 0 : end($messages)['id'] }}">
        @forelse ($messages as $message)
            <li @class(['own' => $author !== '' && $message['author'] === $author])>
                <span class="author">{{ $message['author'] }}</span>
                <time datetime="{{ $message['said_at'] }}">{{ substr($message['said_at'], 11, 5) }}</time>
                <p>{{ $message['text'] }}</p>
            </li>
        @empty
            <li class="nobody">Nobody has said anything yet. The fire is crackling.</li>
        @endforelse
    </ol>
</main>

<p id="status" role="status"></p>

<form id="say" method="post" action="/messages" autocomplete="off">
    @csrf
    <input class="author" name="author" value="{{ old('author', $author) }}" placeholder="Your name" aria-label="Your name"
           maxlength="40" required>
    <input class="text" name="text" value="{{ old('text') }}" placeholder="Say something warm" aria-label="Message"
           maxlength="500" required @if ($author !== '') autofocus @endif>
    <button>Send</button>
    <p class="error" role="alert">{{ $errors->first() }}</p>
</form>
</body>
</html>
