<?php

/** A PHP process that answers one event: run by itself it is that process, included it is how to start one. */

declare(strict_types=1);

final class Child
{
    /** @param array<int, resource> $pipes */
    private function __construct(private $process, private array $pipes)
    {
    }

    /** @param list<string> $options of PHP */
    public static function start(array $options, string $application): self
    {
        $process = proc_open([PHP_BINARY, ...$options, __FILE__, $application], [['pipe', 'r'], ['pipe', 'w'], STDERR], $pipes);
        return new self($process, $pipes);
    }

    public function answer(string $event): string
    {
        fwrite($this->pipes[0], $event);
        fclose($this->pipes[0]);
        $answer = (string) stream_get_contents($this->pipes[1]);
        fclose($this->pipes[1]);
        proc_close($this->process);
        return $answer;
    }
}

if ($argv[0] === __FILE__) {
    require __DIR__ . '/runtime.php';
    $application = application($argv[1]);
    echo $application((string) stream_get_contents(STDIN));
}
