<?php

// Testbench's HTTP kernel, in place of which the tests' requests go over HTTP; and on the server, where a test runs up to the request that is asked for.

declare(strict_types=1);

namespace Orchestra\Testbench\Http;

use Illuminate\Http\Request;
use Illuminate\Http\Response;
use PHPUnit\Framework\TestCase;
use Symfony\Component\HttpFoundation\Response as AnyResponse;

use function Hearth\Conformance\{carried, exchange, port_of};

require_once __DIR__ . '/bootstrap.php';
require_once __DIR__ . '/../over_http.php';
$stock = file_get_contents(getenv('SUITE_TESTBENCH') . '/src/Http/Kernel.php');
eval('?>' . str_replace('class Kernel', 'class InProcessKernel', $stock));

class Kernel extends InProcessKernel
{
    /** Answers in the tests' process; on the server it is set. @var null|\Closure(self, Request): AnyResponse */
    public static ?\Closure $answer = null;

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
        $address = 'http://127.0.0.1:' . port_of($about);
        $suite = json_encode([carried($request), $about]);
        $first = exchange($address, $request, $suite);
        // The model's promise: the second request finds what the first one found.
        $second = exchange($address, $request, $suite);
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
