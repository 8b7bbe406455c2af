<?php

/** Takes records of Kafka topics. One that throws gets the whole batch again. */

declare(strict_types=1);

namespace Hearth\Lambda\Kafka;

use Hearth\Lambda\Context;
use Hearth\Lambda\Handler;

abstract class KafkaHandler implements Handler
{
    abstract public function handleKafka(KafkaEvent $event, Context $context): void;

    final public function handle(mixed $event, Context $context): void
    {
        $this->handleKafka(new KafkaEvent($event), $context);
    }
}
