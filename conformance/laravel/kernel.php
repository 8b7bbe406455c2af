<?php

// Testbench's HTTP kernel, in place of which the tests' requests go over HTTP; and on the server, where a test runs up to the request that is asked for.

declare(strict_types=1);

namespace Orchestra\Testbench\Http;

use Illuminate\Http\Request;
use Illuminate\Http\Response;
use PHPUnit\Framework\TestCase;
use Symfony\Component\HttpFoundation\Response as AnyResponse;

require_once __DIR__ . '/bootstrap.php';
$stock = file_get_contents(getenv('SUITE_TESTBENCH') . '/src/Http/Kernel.php');
eval('?>' . str_replace('class Kernel', 'class InProcessKernel', $stock));

class Kernel extends InProcessKernel
{
    /** Answers in the tests' process; on the server it is set. @var null|\Closure(self, Request): AnyResponse */
    public static ?\Closure $answer = null;

    private const CARRIED = ['REMOTE_ADDR' => 1, 'HTTPS' => 1, 'PHP_AUTH_USER' => 1, 'PHP_AUTH_PW' => 1];
    private static string $test = '';
    private static int $asked = 0;

    public function handle($request)
    {
        return self::$answer === null ? $this->overHttp($request) : (self::$answer)($this, $request);
    }

    public function terminate($request, $response)
    {
        if (self::$answer !== null) {
            parent::terminate($request, $response);
        }
    }

    public function inProcess(Request $request): AnyResponse
    {
        return parent::handle($request);
    }

    private function overHttp(Request $request): AnyResponse
    {
        $case = self::runningTest();
        $name = $case->toString();
        self::$asked = $name === self::$test ? self::$asked + 1 : 1;
        self::$test = $name;
        $about = [(new \ReflectionObject($case))->getFileName(), $case::class, $case->getName(false), $case->dataName(), self::$asked];
        $address = self::address($about);
        $first = self::send($address, $request, $about);
        // The model's promise: the second request finds what the first one found.
        $second = self::send($address, $request, $about);
        file_put_contents(getenv('SUITE_LOG'), json_encode([$name, $request->getMethod(), $request->getRequestUri(), $first, $second], JSON_INVALID_UTF8_SUBSTITUTE | JSON_THROW_ON_ERROR) . "\n", FILE_APPEND);
        [$status, $headers, $content] = $second;
        if (isset($headers['x-suite-thrown'])) {
            throw self::thrown($headers['x-suite-thrown'][0]);
        }
        $response = new Response('', $status, array_diff_key($headers, ['transfer-encoding' => 1, 'connection' => 1, 'content-length' => 1, 'set-cookie' => 1]));
        $response->setContent($content);
        foreach ($headers['set-cookie'] ?? [] as $line) {
            $response->headers->setCookie(\Symfony\Component\HttpFoundation\Cookie::fromString($line));
        }

        return $response;
    }

    private static function runningTest(): TestCase
    {
        foreach (debug_backtrace() as $frame) {
            if (($frame['object'] ?? null) instanceof TestCase) {
                return $frame['object'];
            }
        }
        throw new \LogicException('no test is running');
    }

    private static function address(array $about): string
    {
        $context = stream_context_create(['http' => ['method' => 'POST', 'header' => 'Content-Type: application/json', 'content' => json_encode($about), 'timeout' => 120, 'ignore_errors' => true]]);
        $answer = file_get_contents(getenv('SUITE_CONTROL'), false, $context);
        if (!ctype_digit($answer)) {
            throw new \RuntimeException("no server: $answer");
        }

        return "http://127.0.0.1:$answer";
    }

    /** @return array{int, array<string, list<string>>, string} */
    private static function send(string $address, Request $request, array $about): array
    {
        $headers = array_diff_key($request->headers->all(), ['content-length' => 1, 'cookie' => 1]);
        $body = $request->getContent();
        if ($body === '' && $request->request->count()) {
            $body = http_build_query($request->request->all());
        }
        $lines = isset($headers['accept']) ? [] : ['Accept:'];
        foreach ($headers as $name => $values) {
            foreach ($values as $value) {
                $lines[] = (string) $value === '' ? "$name;" : "$name: $value";
            }
        }
        $server = array_filter(array_intersect_key($request->server->all(), self::CARRIED), is_scalar(...));
        $lines[] = 'X-Suite: ' . base64_encode(json_encode([$server, $about]));
        $cookies = [];
        foreach ($request->cookies->all() as $name => $value) {
            $cookies[] = rawurlencode($name) . '=' . rawurlencode($value);
        }
        $answered = [];
        $handle = curl_init($address . $request->getRequestUri());
        curl_setopt_array($handle, [
            CURLOPT_CUSTOMREQUEST => $request->getMethod(), CURLOPT_NOBODY => $request->getMethod() === 'HEAD', CURLOPT_RETURNTRANSFER => true,
            CURLOPT_HTTPHEADER => $lines, CURLOPT_PATH_AS_IS => true, CURLOPT_TIMEOUT => 60,
            CURLOPT_HEADERFUNCTION => static function ($_, string $line) use (&$answered): int {
                if (str_contains($line, ':')) {
                    [$name, $value] = explode(':', $line, 2);
                    $answered[strtolower($name)][] = trim($value);
                }
                return strlen($line);
            },
        ] + ($body === '' ? [] : [CURLOPT_POSTFIELDS => $body]) + ($cookies ? [CURLOPT_COOKIE => implode('; ', $cookies)] : []));
        $content = curl_exec($handle);
        if ($content === false) {
            throw new \RuntimeException('no answer: ' . curl_error($handle));
        }

        return [curl_getinfo($handle, CURLINFO_RESPONSE_CODE), $answered, $content];
    }

    /** An exception that left the kernel: its class, and what of it is text, numbers and lists of them. */
    public static function carried(\Throwable $thrown): string
    {
        $values = [];
        for ($class = new \ReflectionObject($thrown); $class; $class = $class->getParentClass()) {
            foreach ($class->getProperties() as $property) {
                $property->setAccessible(true);
                $value = $property->isInitialized($thrown) ? $property->getValue($thrown) : null;
                if (!$property->isStatic() && !in_array($property->getName(), ['trace', 'file', 'line', 'string', 'previous'], true) && !is_object($value) && json_encode($value) !== false) {
                    $values[] = [$property->class, $property->getName(), $value];
                }
            }
        }

        return base64_encode(json_encode([$thrown::class, $values]));
    }

    private static function thrown(string $carried): \Throwable
    {
        [$class, $values] = json_decode(base64_decode($carried), true);
        $thrown = (new \ReflectionClass($class))->newInstanceWithoutConstructor();
        foreach ($values as [$declaring, $name, $value]) {
            $property = new \ReflectionProperty($declaring, $name);
            $property->setAccessible(true);
            $property->setValue($thrown, $value);
        }

        return $thrown;
    }
}
