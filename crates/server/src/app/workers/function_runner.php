<?php

/*
 * Calls a function with an event, and sends its result or error as the response.
 *
 * Promises
 * - Every invocation is answered once: with the result as JSON, or with an error that has a type, a message and a trace. This includes functions that throw,
 *   exit, run out of memory or return values that JSON cannot represent.
 * - The function's output is logged, and is never part of the response.
 * - Composer is not needed. With hearth/core, the function's parameter may have one of its event classes, and the function may be a PSR-15 handler.
 */

declare(strict_types=1);

namespace Hearth\Worker;

use Hearth\Lambda\Context;

final class FunctionRunner
{
    /** The field that marks the response as an error (the Runtime API's own name). */
    private const ERROR = 'Lambda-Runtime-Function-Error-Type';

    /** The field with the error's description for X-Ray (the Runtime API's own name). */
    private const CAUSE = 'Lambda-Runtime-Function-XRay-Error-Cause';

    /** Encloses the outcome at the end of a response whose head was sent before. JSON has no such byte. */
    private const OUTCOME = "\x1e";

    /** Limits of an error: characters of its message, places of its trace. */
    private const MAX_MESSAGE = 32_768;
    private const MAX_TRACE = 100;

    /** Limits of the description for X-Ray, which has to fit a field: characters of the message, places, bytes in all. */
    private const MAX_CAUSE_MESSAGE = 1024;
    private const MAX_CAUSE_PLACES = 32;
    private const MAX_CAUSE = 8192;

    /** Freed after an invocation has used up its memory, so that the error can be reported. */
    private const RESERVE = 65_536;

    private const FATAL = E_ERROR | E_PARSE | E_CORE_ERROR | E_COMPILE_ERROR | E_USER_ERROR | E_RECOVERABLE_ERROR;

    /** @var (\Closure(mixed, Context): mixed)|null the function; null: not booted */
    private ?\Closure $handler = null;

    /** @var \Closure(string): mixed decodes the event */
    private \Closure $decode;

    /** Output since the last line end. */
    private string $line = '';

    private bool $isAnswered = true;

    private ?string $reserve = null;

    public function __construct(private readonly string $file, private readonly string $folder)
    {
    }

    /** Loads the function. Its exceptions are passed on. */
    public function boot(): void
    {
        $level = $this->capture();
        try {
            $this->load();
        } finally {
            $this->release($level);
        }
    }

    /** Serves one invocation: the request's body is the event, its variables contain the context. */
    public function serve(): void
    {
        $this->isAnswered = false;
        $this->reserve = str_repeat(' ', self::RESERVE);
        // Sent unless a result replaces it: if the script ends early, the server sees an error.
        http_response_code(500);
        header(self::ERROR . ': Function.Exited');
        register_shutdown_function($this->shutDown(...));
        $this->capture();
        try {
            if ($this->handler === null) {
                $this->load();
            }
            [$event, $context] = $this->invocation();
            $this->answer($this->encode(($this->handler)($event, $context)));
        } catch (InvalidInvocation $e) {
            $this->fail($e->type, $e->type, $e->getMessage(), $e->getPrevious() ?? $e);
        } catch (\Throwable $e) {
            $short = (string) preg_replace('/\A.*\\\\|[^A-Za-z0-9_].*\z/s', '', $e::class);
            $this->fail('Function.' . ($short === '' ? 'Exception' : $short), $e::class, $e->getMessage(), $e);
        }
    }

    /**
     * @internal for tests
     * @return array{mixed, Context}
     */
    private function invocation(): array
    {
        $context = json_decode((string) ($_SERVER['LAMBDA_INVOCATION_CONTEXT'] ?? ''), true);
        $context = Context::fromArray(is_array($context) ? $context : []);
        if ($context->traceId !== '') {
            // X-Ray's and OpenTelemetry's libraries read it there.
            putenv("_X_AMZN_TRACE_ID={$context->traceId}");
            $_SERVER['_X_AMZN_TRACE_ID'] = $context->traceId;
        }
        try {
            $event = ($this->decode)((string) file_get_contents('php://input'));
        } catch (\JsonException $e) {
            throw new InvalidInvocation('Function.InvalidEvent', "The event is not JSON: {$e->getMessage()}.", $e);
        }
        return [$event, $context];
    }

    private function load(): void
    {
        $folder = dirname($this->file);
        while (!is_file("{$folder}/vendor/autoload.php") && str_starts_with($folder, "{$this->folder}/")) {
            $folder = dirname($folder);
        }
        if (is_file("{$folder}/vendor/autoload.php")) {
            require_once "{$folder}/vendor/autoload.php";
        }
        if (!class_exists(Context::class)) {
            require_once __DIR__ . '/function_context.php';
        }
        if (!is_file($this->file)) {
            throw new InvalidInvocation('Function.InvalidHandler', "There is no file {$this->file}.");
        }
        $file = $this->file;
        $returned = (static fn (): mixed => require $file)();
        $this->handler = $this->callable($returned);
        $this->decode = $this->decoder($this->handler);
    }

    /** @return \Closure(mixed, Context): mixed */
    private function callable(mixed $returned): \Closure
    {
        if (is_string($returned) && class_exists($returned)) {
            $constructor = (new \ReflectionClass($returned))->getConstructor();
            if (($constructor?->getNumberOfRequiredParameters() ?? 0) > 0) {
                throw $this->noHandler("the class {$returned}, whose constructor wants arguments: return an object");
            }
            $returned = new $returned();
        }
        // Closures have a method of this name too.
        if ($returned instanceof \Psr\Http\Server\RequestHandlerInterface) {
            if (!class_exists(\Hearth\Lambda\Http\Psr15Handler::class)) {
                throw $this->noHandler('a PSR-15 handler, which needs the package hearth/core: `composer require hearth/core`');
            }
            $returned = new \Hearth\Lambda\Http\Psr15Handler($returned);
        }
        return match (true) {
            $returned instanceof \Closure => $returned,
            is_object($returned) && is_callable([$returned, 'handle']) => $returned->handle(...),
            is_callable($returned) => \Closure::fromCallable($returned),
            $returned === 1 => throw $this->noHandler('nothing'),
            default => throw $this->noHandler(get_debug_type($returned)),
        };
    }

    private function noHandler(string $returned): InvalidInvocation
    {
        return new InvalidInvocation(
            'Function.InvalidHandler',
            "{$this->file} has to return a callable, an object with a method handle(), a PSR-15 handler or the name of such a class; it returns {$returned}.",
        );
    }

    /** Chosen by the type of the function's first parameter: an array, an object, or an event class. */
    private function decoder(\Closure $handler): \Closure
    {
        $type = ((new \ReflectionFunction($handler))->getParameters()[0] ?? null)?->getType();
        $name = $type instanceof \ReflectionNamedType ? $type->getName() : '';
        if ($name === 'object' || $name === \stdClass::class) {
            return static fn (string $json): mixed => json_decode($json, false, 512, JSON_THROW_ON_ERROR);
        }
        $array = static fn (string $json): mixed => json_decode($json, true, 512, JSON_THROW_ON_ERROR);
        if (is_a($name, \Hearth\Lambda\Event::class, true) && class_exists($name)) {
            return static fn (string $json): object => new $name($array($json));
        }
        return $array;
    }

    private function encode(mixed $result): string
    {
        if ($result instanceof \Closure || $result instanceof \Generator || is_resource($result)) {
            throw new InvalidInvocation('Function.InvalidResult', 'The function has returned ' . get_debug_type($result) . ', which JSON cannot hold.');
        }
        try {
            return json_encode($result, JSON_UNESCAPED_SLASHES | JSON_PRESERVE_ZERO_FRACTION | JSON_THROW_ON_ERROR);
        } catch (\JsonException $e) {
            $hint = $e->getCode() === JSON_ERROR_UTF8 ? ' Bytes that are no text go through base64_encode().' : '';
            throw new InvalidInvocation('Function.InvalidResult', "What the function has returned cannot be JSON: {$e->getMessage()}.{$hint}", $e);
        }
    }

    /** Reports an error when the script ends without a result. */
    private function shutDown(): void
    {
        $this->reserve = null;
        if ($this->isAnswered) {
            return;
        }
        $error = error_get_last();
        if ($error !== null && ($error['type'] & self::FATAL) !== 0) {
            // PHP has logged it.
            $place = ['path' => $error['file'], 'line' => $error['line'], 'label' => ''];
            $this->error('Function.Fatal', 'Fatal', $error['message'], ["{$error['file']}:{$error['line']}"], [$place]);
            return;
        }
        $this->log('The function has ended its script (exit or die) instead of returning.', 'error');
        $this->error('Function.Exited', 'Exited', 'The function has ended its script (exit or die) instead of returning.', [$this->file]);
    }

    private function fail(string $type, string $class, string $message, \Throwable $e): void
    {
        $trace = ["{$e->getFile()}:{$e->getLine()}"];
        $places = [['path' => $e->getFile(), 'line' => $e->getLine(), 'label' => '']];
        foreach ($e->getTrace() as $place) {
            // Without arguments, which may be secret.
            $name = ($place['class'] ?? '') . ($place['type'] ?? '') . $place['function'];
            $trace[] = (isset($place['file']) ? "{$place['file']}:{$place['line']} " : '') . "{$name}()";
            // X-Ray expects the function that contains a place; PHP names the one that is called there.
            $places[count($places) - 1]['label'] = "{$name}()";
            $places[] = ['path' => $place['file'] ?? '', 'line' => $place['line'] ?? 0, 'label' => ''];
        }
        $this->log("{$class}: {$message}\n" . implode("\n", array_map(static fn (string $at): string => "  at {$at}", $trace)), 'error');
        $this->error($type, $class, $message, $trace, $places);
    }

    /**
     * @param list<string> $trace
     * @param list<array{path: string, line: int, label: string}> $places the same for X-Ray
     */
    private function error(string $type, string $class, string $message, array $trace, array $places = []): void
    {
        $flags = JSON_UNESCAPED_SLASHES | JSON_INVALID_UTF8_SUBSTITUTE | JSON_PARTIAL_OUTPUT_ON_ERROR;
        $body = json_encode([
            'errorMessage' => substr($message, 0, self::MAX_MESSAGE),
            'errorType' => $class,
            'stackTrace' => array_slice($trace, 0, self::MAX_TRACE),
        ], $flags);
        $this->answer((string) $body, $type, $this->cause($class, $message, $places));
    }

    /**
     * Returns an error in X-Ray's format: ASCII without control characters, because it is sent in a field.
     *
     * @param list<array{path: string, line: int, label: string}> $places
     */
    private function cause(string $class, string $message, array $places): string
    {
        $flags = JSON_UNESCAPED_SLASHES | JSON_INVALID_UTF8_SUBSTITUTE | JSON_PARTIAL_OUTPUT_ON_ERROR;
        $places = array_slice($places, 0, self::MAX_CAUSE_PLACES);
        do {
            $cause = (string) json_encode([
                'working_directory' => $this->folder,
                'exceptions' => [['type' => $class, 'message' => substr($message, 0, self::MAX_CAUSE_MESSAGE), 'stack' => $places]],
                'paths' => array_values(array_unique(array_column($places, 'path'))),
            ], $flags);
        } while (strlen($cause) > self::MAX_CAUSE && array_pop($places) !== null);
        return strlen($cause) > self::MAX_CAUSE ? '' : $cause;
    }

    /**
     * @param ?string $error its type; null: it is a result
     * @param string $cause the error's description for X-Ray; empty: none
     */
    private function answer(string $body, ?string $error = null, string $cause = ''): void
    {
        $this->isAnswered = true;
        $this->reserve = null;
        $this->release(0);
        // By flush(), or by output after the function has closed our buffer: the head has Function.Exited, and the body has to tell what came of it.
        $isSent = headers_sent();
        if (!$isSent) {
            header_remove();
            header('Content-Type: application/json');
            header('Content-Length: ' . strlen($body));
            if ($error === null) {
                http_response_code(200);
            } else {
                http_response_code(500);
                header(self::ERROR . ": {$error}");
                if ($cause !== '') {
                    header(self::CAUSE . ": {$cause}");
                }
            }
        }
        echo $body;
        if ($isSent) {
            echo self::OUTCOME, json_encode(['length' => strlen($body), 'type' => $error, 'cause' => $cause]), self::OUTCOME;
        }
        // Catches output of shutdown functions and destructors.
        $this->capture();
    }

    /** @return int the previous number of buffers */
    private function capture(): int
    {
        $level = ob_get_level();
        ob_start(function (string $text, int $phase): string {
            $lines = explode("\n", $this->line . $text);
            $this->line = (string) array_pop($lines);
            if (($phase & PHP_OUTPUT_HANDLER_FINAL) !== 0) {
                $lines[] = $this->line;
                $this->line = '';
            }
            foreach ($lines as $line) {
                if ($line !== '') {
                    $this->log($line, 'info');
                }
            }
            return '';
        }, 1);
        return $level;
    }

    /** Closes the function's output buffers and ours. */
    private function release(int $level): void
    {
        while (ob_get_level() > $level && @ob_end_flush()) {
        }
    }

    private function log(string $line, string $level): void
    {
        if (function_exists('hearth_log')) {
            hearth_log($line, $level);
        } else {
            error_log($line);
        }
    }
}
