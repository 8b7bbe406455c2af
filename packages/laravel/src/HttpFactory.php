<?php

/** Laravel's HTTP factory, whose requests go out by our handler. */

declare(strict_types=1);

namespace Hearth\Laravel;

use Hearth\Guzzle\Handler;
use Illuminate\Http\Client\Factory;
use Illuminate\Http\Client\PendingRequest as LaravelsPendingRequest;

class HttpFactory extends Factory
{
    private Handler $hearth;

    /** With all that has been set on the other: fakes, middleware, options. */
    public static function inPlaceOf(Factory $other, Handler $handler): self
    {
        $factory = new self($other->getDispatcher());
        foreach (get_object_vars($other) as $name => $value) {
            $factory->{$name} = $value;
        }
        $factory->hearth = $handler;
        return $factory;
    }

    protected function newPendingRequest(): LaravelsPendingRequest
    {
        // What this version of Laravel gives a request of its own: global middleware and options came later than Laravel 8.
        $theirs = parent::newPendingRequest();
        return PendingRequest::inPlaceOf($theirs, $this->hearth);
    }
}
