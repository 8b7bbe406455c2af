<?php

// The application of bench/soak. Each answer has all that a client needs to check it, and names any state that another request has
// left behind.

declare(strict_types=1);

namespace Hearth\Bench;

use PDO;

final class Soak
{
    /** @var array<string, string> */
    public static array $left = [];
    public static ?PDO $database = null;

    /** Every place that this request writes to, and its value before. */
    public static function marked(string $mark): string
    {
        static $last = '';
        $found = array_filter([
            $last,
            self::$left['mark'] ?? '',
            $GLOBALS['mark'] ?? '',
            (string) getenv('SOAK_MARK'),
            ini_get('user_agent'),
            date_default_timezone_get() === 'UTC' ? '' : 'time zone',
            getcwd() === __DIR__ ? '' : 'folder',
            ob_get_level() > 1 ? 'output buffer' : '',
            implode(array_map('strval', array_keys($_SESSION ?? []))),
        ]);
        $last = self::$left['mark'] = $GLOBALS['mark'] = $mark;
        putenv("SOAK_MARK=$mark");
        ini_set('user_agent', $mark);
        date_default_timezone_set('Asia/Tokyo');
        chdir('/');
        ob_start();
        return $found === [] ? 'clean' : 'LEFT ' . implode(', ', $found);
    }

    public static function answer(): void
    {
        $n = $_GET['n'] ?? '';
        $found = self::marked($n);
        header("X-Soak: $n");
        switch (parse_url($_SERVER['REQUEST_URI'], PHP_URL_PATH)) {
            case '/upload':
                $file = $_FILES['file'];
                // Clients that leave in the middle.
                $whole = $file['error'] === UPLOAD_ERR_OK;
                echo "upload $n $found " . ($whole ? "{$file['size']} " . md5_file($file['tmp_name']) : 'cut off');
                break;
            case '/stream':
                echo "stream $n $found";
                while (ob_get_level() > 0) {
                    ob_end_flush();
                }
                for ($part = 0; $part < 20; $part++) {
                    echo " $part";
                    flush();
                    usleep(2000);
                }
                break;
            case '/call':
                $curl = curl_init($_SERVER['SOAK_ORIGIN'] . "/?n=$n");
                curl_setopt_array($curl, [CURLOPT_RETURNTRANSFER => true, CURLOPT_TIMEOUT => 60]);
                $body = curl_exec($curl);
                echo "call $n $found " . ($body === false ? curl_error($curl) : $body);
                break;
            case '/database':
                if (self::$database === null) {
                    echo "database $n $found none " . (getenv('SOAK_DATABASE') === false ? $n : 'no connection');
                    break;
                }
                $before = self::$database->query('select @mark')->fetchColumn();
                self::$database->exec("set @mark = '$n'");
                self::$database->exec('create temporary table marks (n int)');
                self::$database->beginTransaction();
                $id = 1 + (int) $n % 100;
                $amount = (int) self::$database->query("select amount from things where id = $id")->fetchColumn();
                echo "database $n $found " . ($before === null ? 'none' : "LEFT $before") . ' ' . ($amount === $id ? $n : "WRONG $amount");
                break;
            case '/publish':
                echo "publish $n $found";
                hearth_publish('soak', 'tick', ['n' => $n]);
                break;
            default:
                $rows = array_map(static fn (int $i): string => str_repeat(md5("$n $i"), 4), range(1, 200));
                echo "page $n $found " . md5(implode($rows));
        }
    }
}

if (getenv('SOAK_DATABASE') !== false) {
    hearth_on_worker_start(static function (): void {
        Soak::$database = new PDO(getenv('SOAK_DATABASE'), 'visitor', 'a password');
        hearth_keep_connection(Soak::$database);
    });
}
chdir(__DIR__);
date_default_timezone_set('UTC');
while (hearth_handle_request(static fn () => Soak::answer())) {
}
