<?php

/** Shared by the cases of curl and of streams: the origin's facts, and an address without an
 * origin. */

declare(strict_types=1);

/** The request as the origin received it, without the number of its connection. */
function facts(mixed $result): mixed
{
    $facts = is_string($result) ? json_decode($result, true) : null;
    if (!is_array($facts) || !isset($facts['connection'])) {
        return $result;
    }
    unset($facts['connection']);
    // stock PHP's streams ask the origin to close, the broker keeps its connection
    $facts['fields'] = array_filter($facts['fields'], fn ($field) => $field !== ['Connection', 'close']);
    // the broker chooses the body's framing
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
