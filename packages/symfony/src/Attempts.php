<?php

/** Prepares each attempt of a call for the inner client: through the broker's socket if the planner allows it, else unchanged. */

declare(strict_types=1);

namespace Hearth\Symfony;

use Hearth\Egress\Listener;
use Hearth\Egress\Target;

/** @internal */
final class Attempts
{
    public function __construct(private readonly Planner $planner)
    {
    }

    /**
     * Returns URL and options with which the inner client makes the call at its current URL.
     *
     * @param array<string, mixed> $options of the attempt
     * @return array{string, array<string, mixed>}
     */
    public function prepare(EgressCall $call, array $options): array
    {
        $call->begin($options);
        $target = Target::of($call->url);
        $plan = $target === null ? null : $this->planner->plan($target, $options, Redirects::proxy($call->url, $options));
        if ($plan === null) {
            return [$call->url, $options];
        }
        [$listener, $control] = $plan;
        $call->route($target);
        if (preg_grep('/^host:/i', $options['headers']) === []) {
            $options['headers'][] = "Host: {$target->authority()}";
        }
        foreach ([Listener::ORIGIN => $target->origin(), Listener::CONTROL => $control] + Listener::trace() as $name => $value) {
            $options['headers'][] = "{$name}: {$value}";
        }
        // A Unix socket has no address family.
        unset($options['extra']['curl'][CURLOPT_IPRESOLVE]);
        $through = ['bindto' => $listener->socket, 'proxy' => '', 'no_proxy' => '*', 'http_version' => '1.1'];
        $through += ['max_redirects' => 0, 'resolve' => []];
        if (is_callable($progress = $options['on_progress'] ?? null)) {
            $through['on_progress'] = static function (int $now, int $size, array $info) use ($progress, $call): void {
                $progress($now, $size, $call->amend($info));
            };
        }
        return [$call->listenerUrl, $through + $options];
    }
}
