<?php

/** Laravel's HTTP factory, whose requests use Hearth's handler. */

declare(strict_types=1);

namespace Hearth\Laravel;

use Hearth\Guzzle\Handler;
use Illuminate\Http\Client\Factory;
use Illuminate\Http\Client\PendingRequest as LaravelsPendingRequest;

class HttpFactory extends Factory
{
    private Handler $hearth;

    /** Creates a factory with the other's fakes, middleware and options. */
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
        // Creates a request as this version of Laravel does: global middleware and options are newer than Laravel 8.
        $theirs = parent::newPendingRequest();
        return PendingRequest::inPlaceOf($theirs, $this->hearth);
    }
}
