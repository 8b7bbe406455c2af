<?php
// Symfony's test client, whose requests go over HTTP: each kernel of a test is an application that `run` starts and gives the port of.

namespace Symfony\Bundle\FrameworkBundle;

use PHPUnit\Framework\TestCase;
use Symfony\Component\HttpFoundation\Response;

use function Hearth\Conformance\{carried, exchange, port_of};

require_once __DIR__ . '/bootstrap.php';
require_once __DIR__ . '/../over_http.php';
$stock = file_get_contents(getenv('SUITE_SOURCE') . '/src/Symfony/Bundle/FrameworkBundle/KernelBrowser.php');
eval('?>' . str_replace('class KernelBrowser', 'class InProcessBrowser', $stock));

class KernelBrowser extends InProcessBrowser
{
    private bool $profile = false;
    private bool $asked = false;

    public function enableProfiler(): void
    {
        $this->profile = $this->getContainer()->has('profiler');
    }

    public function insulate(bool $insulated = true): void
    {
        // Each request is another process's anyway.
    }

    protected function doRequest(object $request): Response
    {
        if ($this->asked) {
            $this->kernel->boot();
            $this->kernel->shutdown();
        }
        $this->asked = true;
        $this->kernel->boot();
        $ended = sys_get_temp_dir() . '/ended-' . bin2hex(random_bytes(8));
        $suite = ['server' => carried($request, 'SERVER_NAME', 'SERVER_PORT'), 'profiler' => $this->profile, 'ended' => $ended];
        $this->profile = false;
        [$status, $answered, $content] = exchange('http://127.0.0.1:' . $this->port(), $request, json_encode($suite));
        // What the application does behind its answer, such as writing its profile, has been done before the test looks.
        for ($tries = 0; !file_exists($ended) && $tries < 5000; $tries++) {
            usleep(1000);
            clearstatcache(true, $ended);
        }
        @unlink($ended);
        $this->note([$request->getMethod(), $request->getRequestUri(), $status, $answered, $content]);

        return new Response($content, $status, array_diff_key($answered, ['transfer-encoding' => 1, 'connection' => 1]));
    }

    private function port(): string
    {
        $values = [];
        foreach (['varDir', 'testCase', 'rootConfig', 'environment', 'debug', 'authenticatorManagerEnabled'] as $name) {
            for ($class = new \ReflectionObject($this->kernel); $class && !$class->hasProperty($name); $class = $class->getParentClass()) {
            }
            if ($class) {
                $values[] = $class->getProperty($name)->getValue($this->kernel);
            }
        }
        $about = [(new \ReflectionObject($this->kernel))->getFileName(), $this->kernel::class, $values];

        return port_of($about);
    }

    private function note(array $exchange): void
    {
        foreach (debug_backtrace() as $frame) {
            if (($frame['object'] ?? null) instanceof TestCase) {
                $line = json_encode([$frame['object']->toString(), ...$exchange], JSON_INVALID_UTF8_SUBSTITUTE | JSON_THROW_ON_ERROR);
                file_put_contents(getenv('SUITE_LOG'), "$line\n", FILE_APPEND);
                return;
            }
        }
    }
}
