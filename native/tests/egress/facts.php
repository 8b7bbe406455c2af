<?php

/** What the cases of curl and of streams share: the origin's facts, and a place without an origin. */

declare(strict_types=1);

/** What the origin says it got; the number of its connection is not the caller's business. */
function facts(mixed $result): mixed
{
    $facts = is_string($result) ? json_decode($result, true) : null;
    if (!is_array($facts) || !isset($facts['connection'])) {
        return $result;
    }
    unset($facts['connection']);
    // stock PHP's streams ask the origin to close, the broker keeps its connection
    $facts['fields'] = array_filter($facts['fields'], fn ($field) => $field !== ['Connection', 'close']);
    // the broker frames the body by itself
    $frames = fn (array $field) => strtolower($field[0]) === 'transfer-encoding';
    $facts['fields'] = array_merge(
        array_values(array_filter($facts['fields'], fn ($field) => !$frames($field))),
        array_values(array_filter($facts['fields'], $frames))
    );
    return $facts;
}

/** A port without a listener. */
function closed_port(): int
{
    return (int) getenv('EGRESS_CLOSED_PORT');
}
