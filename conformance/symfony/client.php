<?php
// Symfony's test client, whose requests go over HTTP: each kernel of a test is an application that `run` starts and gives the port of.

namespace Symfony\Bundle\FrameworkBundle;

use PHPUnit\Framework\TestCase;
use Symfony\Component\HttpFoundation\Response;

require_once __DIR__ . '/bootstrap.php';
$stock = file_get_contents(getenv('SUITE_SOURCE') . '/src/Symfony/Bundle/FrameworkBundle/KernelBrowser.php');
eval('?>' . str_replace('class KernelBrowser', 'class InProcessBrowser', $stock));

class KernelBrowser extends InProcessBrowser
{
    private const CARRIED = ['REMOTE_ADDR' => 1, 'HTTPS' => 1, 'SERVER_NAME' => 1, 'SERVER_PORT' => 1, 'PHP_AUTH_USER' => 1, 'PHP_AUTH_PW' => 1];

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
        $body = $request->getContent();
        $headers = array_diff_key($request->headers->all(), ['content-length' => 1, 'cookie' => 1]);
        if ($body === '' && $request->request->count()) {
            $body = http_build_query($request->request->all());
        }
        $lines = $headers['accept'] ?? null ? [] : ['Accept:'];
        foreach ($headers as $name => $values) {
            foreach ($values as $value) {
                $lines[] = $value === '' || $value === null ? "$name;" : "$name: $value";
            }
        }
        $ended = sys_get_temp_dir() . '/ended-' . bin2hex(random_bytes(8));
        $server = array_filter(array_intersect_key($request->server->all(), self::CARRIED), is_scalar(...));
        $lines[] = 'X-Suite: ' . base64_encode(json_encode(['server' => $server, 'profiler' => $this->profile, 'ended' => $ended]));
        $cookies = [];
        foreach ($request->cookies->all() as $name => $value) {
            $cookies[] = rawurlencode($name) . '=' . rawurlencode($value);
        }
        $this->profile = false;
        $answered = [];
        $handle = curl_init('http://127.0.0.1:' . $this->port() . $request->getRequestUri());
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
        // What the application does behind its answer, such as writing its profile, has been done before the test looks.
        for ($tries = 0; !file_exists($ended) && $tries < 5000; $tries++) {
            usleep(1000);
            clearstatcache(true, $ended);
        }
        @unlink($ended);
        $status = curl_getinfo($handle, CURLINFO_RESPONSE_CODE);
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
        $context = stream_context_create(['http' => ['method' => 'POST', 'header' => 'Content-Type: application/json', 'content' => json_encode($about), 'timeout' => 120]]);

        return file_get_contents(getenv('SUITE_CONTROL'), false, $context);
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
