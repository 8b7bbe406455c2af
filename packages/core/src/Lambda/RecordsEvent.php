<?php

/** An event of several records, all of one source. Promises: an event of another source is refused at once, and so is half of one. */

declare(strict_types=1);

namespace Hearth\Lambda;

/** @internal */
abstract class RecordsEvent implements Event
{
    /** How `eventSource` begins, and how messages call the event. */
    protected const SOURCE = '';
    protected const NAME = '';
    /** @var class-string<Record> */
    protected const RECORD = Record::class;

    /** @var array<mixed> */
    private readonly array $event;

    /** @var list<Record> */
    private readonly array $made;

    final public function __construct(mixed $event)
    {
        $records = is_array($event) ? $event['Records'] ?? null : null;
        if (!is_array($records) || !array_is_list($records)) {
            throw InvalidEvent::for(static::NAME, $event);
        }
        $made = [];
        foreach ($records as $record) {
            // SNS alone writes its key with a capital.
            $source = is_array($record) ? $record['eventSource'] ?? $record['EventSource'] ?? '' : '';
            if (!is_string($source) || !str_starts_with($source, static::SOURCE)) {
                throw InvalidEvent::for(static::NAME, $record);
            }
            $class = static::RECORD;
            $made[] = new $class($record);
        }
        $this->event = $event;
        $this->made = $made;
    }

    /** @return list<Record> */
    public function getRecords(): array
    {
        return $this->made;
    }

    /** @return array<mixed> */
    final public function toArray(): array
    {
        return $this->event;
    }
}
