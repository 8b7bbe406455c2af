<?php
// One connection of a database, kept by the worker: ?look describes the server's session, ?do=NAME leaves something behind in it, ?fresh
// describes a session of a new connection, ?names lists what can be left, ?within waits in a transaction. KIND and SERVER say which database and where.

declare(strict_types=1);

require __DIR__ . '/sessions.php';
require __DIR__ . '/streams.php';

final class Application
{
    public static Session $session;
    public static bool $kept = false;
}

$class = getenv('KIND') ?: '';
Application::$session = new $class(getenv('SERVER') ?: '');

hearth_on_worker_start(static function (): void {
    try {
        Application::$session->open();
    } catch (Throwable $error) {
        // The database may stop between the login and what `open()` sends after it: requests open another session.
        if (Application::$session->isOpen()) {
            Application::$session->close();
        }
        throw $error;
    }
    Application::$kept = hearth_keep_connection(Application::$session);
    if (!Application::$kept) {
        Application::$session->close();
    }
});

while (hearth_handle_request(static function (): void {
    header('Content-Type: application/json');
    $session = Application::$session;
    $say = static function (mixed $answer) use ($session): void {
        $id = $session->isOpen() ? $session->id() : null;
        echo json_encode(['pid' => getmypid(), 'kept' => Application::$kept, 'id' => $id, 'answer' => $answer], JSON_THROW_ON_ERROR);
    };
    if (isset($_GET['names'])) {
        $say(array_values(array_filter(get_class_methods($session), static fn (string $name): bool => str_starts_with($name, 'do_'))));
        return;
    }
    if (isset($_GET['nothing'])) {
        echo 'nothing';
        return;
    }
    if (isset($_GET['lock'])) {
        $file = fopen(__FILE__, 'r');
        flock($file, LOCK_SH);
        echo json_encode(['pid' => getmypid()]);
        return;
    }
    if (!$session->isOpen()) {
        $session->open();
    }
    if (isset($_GET['rotate'])) {
        $session->rotate($_GET['rotate']);
        echo '{}';
        return;
    }
    if (isset($_GET['fresh'])) {
        $fresh = new $session(getenv('SERVER') ?: '');
        $fresh->open();
        $say($fresh->look());
        // It stays open in an object that lives until the end of the request.
        $GLOBALS['fresh'] = $fresh;
        return;
    }
    if (isset($_GET['within'])) {
        // A transaction that continues on a signal: the database may restart meanwhile.
        $session instanceof PhpRedis ? $session->do_multi() : $session->do_transaction();
        touch(__DIR__ . '/within');
        for ($i = 0; $i < 4000 && !file_exists(__DIR__ . '/go'); $i++) {
            usleep(5000);
        }
        try {
            $lost = $session->look() === [];
        } catch (Throwable) {
            $lost = true;
        }
        echo json_encode(['lost' => $lost]);
        return;
    }
    if (isset($_GET['do'])) {
        $id = $session->id();
        echo json_encode(['pid' => getmypid(), 'id' => $id]);
        foreach (explode(',', $_GET['do']) as $name) {
            $session->{'do_' . $name}();
        }
        return;
    }
    $say($session->look());
})) {
}
