<?php

/** One event of a bucket. */

declare(strict_types=1);

namespace Hearth\Lambda\S3;

use Hearth\Lambda\Record;

final class S3Record extends Record
{
    public function getBucket(): Bucket
    {
        $bucket = $this->record['s3']['bucket'] ?? [];
        return new Bucket((string) ($bucket['name'] ?? ''), (string) ($bucket['arn'] ?? ''));
    }

    public function getObject(): BucketObject
    {
        $object = $this->record['s3']['object'] ?? [];
        // Keys are encoded as in a form: a blank is `+`.
        $key = urldecode((string) ($object['key'] ?? ''));
        return new BucketObject($key, (int) ($object['size'] ?? 0), $object['versionId'] ?? null, $object['eTag'] ?? null);
    }

    public function getEventTime(): \DateTimeImmutable
    {
        return new \DateTimeImmutable((string) ($this->record['eventTime'] ?? '@0'));
    }

    /** E.g. `ObjectCreated:Put`. */
    public function getEventName(): string
    {
        return (string) ($this->record['eventName'] ?? '');
    }

    public function getAwsRegion(): string
    {
        return (string) ($this->record['awsRegion'] ?? '');
    }
}
