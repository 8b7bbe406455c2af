<?php

/** Events as AWS's documentation shows them. */

declare(strict_types=1);

namespace Hearth\Tests\Lambda;

final class Samples
{
    /**
     * @param list<string> $bodies
     * @param list<string> $groups of a FIFO queue: each message's
     * @return array<string, mixed>
     */
    public static function sqs(array $bodies, array $groups = []): array
    {
        $records = [];
        foreach ($bodies as $at => $body) {
            $records[] = [
                'messageId' => 'm' . $at + 1,
                'receiptHandle' => 'handle-' . $at + 1,
                'body' => $body,
                'attributes' => [
                    'ApproximateReceiveCount' => '2',
                    'SentTimestamp' => '1426760782123',
                    'SenderId' => 'AIDAIENQZJOLO23YVJ4VO',
                ] + (isset($groups[$at]) ? ['MessageGroupId' => $groups[$at], 'SequenceNumber' => (string) (18849496460467696128 + $at)] : []),
                'messageAttributes' => ['colour' => ['stringValue' => 'blue', 'dataType' => 'String']],
                'md5OfBody' => md5($body),
                'eventSource' => 'aws:sqs',
                'eventSourceARN' => 'arn:aws:sqs:eu-west-1:123456789012:jobs' . ($groups === [] ? '' : '.fifo'),
                'awsRegion' => 'eu-west-1',
            ];
        }
        return ['Records' => $records];
    }

    /**
     * @param list<string> $numbers
     * @return array<string, mixed>
     */
    public static function dynamoDb(array $numbers): array
    {
        return ['Records' => array_map(static fn (string $number): array => [
            'eventID' => '1',
            'eventName' => 'MODIFY',
            'eventVersion' => '1.1',
            'eventSource' => 'aws:dynamodb',
            'awsRegion' => 'us-east-1',
            'dynamodb' => [
                'Keys' => ['Id' => ['N' => '101']],
                'NewImage' => [
                    'Id' => ['N' => '101'],
                    'Message' => ['S' => 'New item!'],
                    'Paid' => ['BOOL' => true],
                    'Tags' => ['SS' => ['a', 'b']],
                    'Of' => ['M' => ['name' => ['NULL' => true]]],
                ],
                'SequenceNumber' => $number,
                'SizeBytes' => 26,
                'StreamViewType' => 'NEW_AND_OLD_IMAGES',
            ],
            'eventSourceARN' => 'arn:aws:dynamodb:us-east-1:123456789012:table/orders/stream/2015-06-27T00:48:05.899',
        ], $numbers)];
    }

    /**
     * @param list<string> $data
     * @return array<string, mixed>
     */
    public static function kinesis(array $data): array
    {
        return ['Records' => array_map(static fn (string $data, int $at): array => [
            'kinesis' => [
                'kinesisSchemaVersion' => '1.0',
                'partitionKey' => '1',
                'sequenceNumber' => "s{$at}",
                'data' => base64_encode($data),
                'approximateArrivalTimestamp' => 1545084650.987,
            ],
            'eventSource' => 'aws:kinesis',
            'eventID' => "shardId-000000000006:s{$at}",
            'eventName' => 'aws:kinesis:record',
            'awsRegion' => 'us-east-2',
            'eventSourceARN' => 'arn:aws:kinesis:us-east-2:123456789012:stream/lambda-stream',
        ], $data, array_keys($data))];
    }

    /** @return array<string, mixed> */
    public static function websocket(string $type, ?string $body, bool $isBase64 = false): array
    {
        return [
            'requestContext' => [
                'routeKey' => $type === 'MESSAGE' ? '$default' : '$' . strtolower($type),
                'eventType' => $type,
                'connectionId' => 'Fc5SzcQYGj0CFXg=',
                'domainName' => 'abc.execute-api.eu-west-1.amazonaws.com',
                'apiId' => 'abc',
                'stage' => 'prod',
            ],
            'body' => $body,
            'isBase64Encoded' => $isBase64,
        ];
    }
}
