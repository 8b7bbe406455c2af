<?php

/** Each kind of event, in AWS's documented format, is parsed by its class. Events of other kinds
 * and invalid ones are refused. */

declare(strict_types=1);

namespace Hearth\Tests\Lambda;

use Hearth\Lambda\ApiGateway\WebsocketEvent;
use Hearth\Lambda\DynamoDb\AttributeValue;
use Hearth\Lambda\DynamoDb\DynamoDbEvent;
use Hearth\Lambda\EventBridge\EventBridgeEvent;
use Hearth\Lambda\InvalidEvent;
use Hearth\Lambda\Kafka\KafkaEvent;
use Hearth\Lambda\Kinesis\KinesisEvent;
use Hearth\Lambda\S3\S3Event;
use Hearth\Lambda\Sns\SnsEvent;
use Hearth\Lambda\Sqs\SqsEvent;
use PHPUnit\Framework\TestCase;

final class EventsTest extends TestCase
{
    public function testAMessageOfAQueue(): void
    {
        $event = new SqsEvent(Samples::sqs(['{"a":1}']));
        [$record] = $event->getRecords();
        $this->assertSame('m1', $record->getMessageId());
        $this->assertSame('{"a":1}', $record->getBody());
        $this->assertSame(2, $record->getApproximateReceiveCount());
        $this->assertSame('handle-1', $record->getReceiptHandle());
        $this->assertSame('jobs', $record->getQueueName());
        $this->assertSame('https://sqs.eu-west-1.amazonaws.com/123456789012/jobs', $record->getQueueUrl());
        $this->assertSame('2015-03-19T10:26:22.123+00:00', $record->getSentTime()->format(DATE_RFC3339_EXTENDED));
        $this->assertSame('blue', $record->getMessageAttributes()['colour']['stringValue']);
        $this->assertFalse($record->isFifo());
        $this->assertNull($record->getMessageGroupId());
        $this->assertSame(Samples::sqs(['{"a":1}']), $event->toArray());
        $this->assertSame($event->toArray()['Records'][0], $record->toArray());
    }

    public function testANotificationOfATopic(): void
    {
        [$record] = (new SnsEvent(['Records' => [[
            'EventSource' => 'aws:sns',
            'EventVersion' => '1.0',
            'EventSubscriptionArn' => 'arn:aws:sns:eu-west-1:123456789012:news:1',
            'Sns' => [
                'Type' => 'Notification',
                'MessageId' => '95df01b4',
                'TopicArn' => 'arn:aws:sns:eu-west-1:123456789012:news',
                'Subject' => null,
                'Message' => 'Hello from SNS!',
                'Timestamp' => '2019-01-02T12:45:07.000Z',
                'MessageAttributes' => ['Test' => ['Type' => 'String', 'Value' => 'TestString']],
            ],
        ]]]))->getRecords();
        $this->assertSame('95df01b4', $record->getMessageId());
        $this->assertSame('', $record->getSubject());
        $this->assertSame('Hello from SNS!', $record->getMessage());
        $this->assertSame('arn:aws:sns:eu-west-1:123456789012:news', $record->getTopicArn());
        $this->assertSame('arn:aws:sns:eu-west-1:123456789012:news:1', $record->getEventSubscriptionArn());
        $this->assertSame(1546433107, $record->getTimestamp()->getTimestamp());
        $this->assertSame(['String', 'TestString'], [$record->getMessageAttributes()['Test']->getType(), $record->getMessageAttributes()['Test']->getValue()]);
        $this->assertSame(['Type' => 'String', 'Value' => 'TestString'], $record->getMessageAttributes()['Test']->toArray());
    }

    public function testAHappeningInABucket(): void
    {
        [$record] = (new S3Event(['Records' => [[
            'eventVersion' => '2.1',
            'eventSource' => 'aws:s3',
            'awsRegion' => 'us-east-2',
            'eventTime' => '2019-09-03T19:37:27.192Z',
            'eventName' => 'ObjectCreated:Put',
            's3' => [
                'bucket' => ['name' => 'pictures', 'arn' => 'arn:aws:s3:::pictures'],
                'object' => ['key' => 'b21b%2Fmy+caf%C3%A9.jpg', 'size' => 1305107, 'eTag' => 'b21b84d6', 'sequencer' => '0C0F6F405D6ED209E1'],
            ],
        ]]]))->getRecords();
        $this->assertSame('ObjectCreated:Put', $record->getEventName());
        $this->assertSame('us-east-2', $record->getAwsRegion());
        $this->assertSame('27.192000', $record->getEventTime()->format('s.u'));
        $this->assertSame(['pictures', 'arn:aws:s3:::pictures'], [$record->getBucket()->getName(), $record->getBucket()->getArn()]);
        $object = $record->getObject();
        $this->assertSame(['b21b/my café.jpg', 1305107, null, 'b21b84d6'], [$object->getKey(), $object->getSize(), $object->getVersionId(), $object->eTag]);
    }

    public function testAnEventOfABus(): void
    {
        $sent = [
            'version' => '0',
            'id' => '53dc4d37-cffa-4f76-80c9-8b7d4a4d2eaa',
            'detail-type' => 'Scheduled Event',
            'source' => 'aws.events',
            'account' => '123456789012',
            'time' => '2015-10-08T16:53:06Z',
            'region' => 'us-east-1',
            'resources' => ['arn:aws:events:us-east-1:123456789012:rule/MyScheduledRule'],
            'detail' => [],
        ];
        $event = new EventBridgeEvent($sent);
        $this->assertSame('53dc4d37-cffa-4f76-80c9-8b7d4a4d2eaa', $event->getId());
        $this->assertSame(['0', 'us-east-1', '123456789012'], [$event->getVersion(), $event->getAwsRegion(), $event->getAwsAccountId()]);
        $this->assertSame(['aws.events', 'Scheduled Event', []], [$event->getSource(), $event->getDetailType(), $event->getDetail()]);
        $this->assertSame(1444323186, $event->getTimestamp()->getTimestamp());
        $this->assertSame($sent['resources'], $event->getResources());
        $this->assertSame($sent, $event->toArray());
    }

    public function testAChangeOfATable(): void
    {
        [$record] = (new DynamoDbEvent(Samples::dynamoDb(['111'])))->getRecords();
        $this->assertSame(['MODIFY', '111', 26, 'NEW_AND_OLD_IMAGES', 'orders'], [
            $record->getEventName(), $record->getSequenceNumber(), $record->getSizeBytes(), $record->getStreamViewType(), $record->getTableName(),
        ]);
        $this->assertSame(['Id' => ['N' => '101']], $record->getKeys());
        $this->assertSame(['Id' => 101], $record->keys());
        $this->assertSame(['Id' => 101, 'Message' => 'New item!', 'Paid' => true, 'Tags' => ['a', 'b'], 'Of' => ['name' => null]], $record->newItem());
        $this->assertNull($record->oldItem());
        $this->assertNull($record->getOldImage());
        $this->assertSame(['S' => 'New item!'], $record->getNewImage()['Message']);
    }

    public function testNumbersOfDynamoDbKeepTheirDigits(): void
    {
        $numbers = [
            '0' => 0, '-7' => -7, '9223372036854775807' => PHP_INT_MAX, '9223372036854775808' => '9223372036854775808', '1.5' => 1.5, '-0.1' => -0.1,
            '1E+3' => 1000.0, '1e-130' => 1e-130, '3.14159265358979323846264338327950288' => '3.14159265358979323846264338327950288',
            '100000000000000000000' => 1e20, '123456789012345678901234567890' => '123456789012345678901234567890', '0.30000000000000004' => 0.30000000000000004,
        ];
        foreach ($numbers as $text => $value) {
            $this->assertSame($value, AttributeValue::decode(['N' => (string) $text]), "of {$text}");
        }
        $this->assertSame([1, 2.5], AttributeValue::decode(['NS' => ['1', '2.5']]));
        $this->assertSame("\0\xff", AttributeValue::decode(['B' => 'AP8=']));
        $this->assertSame(["\0\xff"], AttributeValue::decode(['BS' => ['AP8=']]));
        $this->assertSame([1, ['x'], null, false], AttributeValue::decode(['L' => [['N' => '1'], ['L' => [['S' => 'x']]], ['NULL' => true], ['BOOL' => false]]]));
    }

    public function testValuesThatAreNoneOfDynamoDbsAreRefused(): void
    {
        foreach ([['N' => 1], ['S' => null], ['X' => 'a'], [], 'a', ['S' => 'a', 'N' => '1'], ['B' => '*'], ['L' => [[]]]] as $value) {
            try {
                AttributeValue::decode($value);
                $this->fail(json_encode($value));
            } catch (InvalidEvent $e) {
                $this->assertStringStartsWith('This handler takes ', $e->getMessage());
            }
        }
    }

    public function testARecordOfAStream(): void
    {
        [$record] = (new KinesisEvent(Samples::kinesis(['{"a":"ü"}'])))->getRecords();
        $this->assertSame('{"a":"ü"}', $record->getRawData());
        $this->assertSame(['a' => 'ü'], $record->getData());
        $this->assertSame(['1', 's0', 'aws:kinesis:record'], [$record->getPartitionKey(), $record->getSequenceNumber(), $record->getEventName()]);
        $this->assertSame('1545084650.987000', $record->getApproximateArrivalTime()->format('U.u'));
    }

    public function testRecordsOfKafka(): void
    {
        $records = (new KafkaEvent(['eventSource' => 'aws:kafka', 'eventSourceArn' => 'arn', 'records' => [
            'mytopic-0' => [
                ['topic' => 'mytopic', 'partition' => 0, 'offset' => 15, 'timestamp' => 1545084650987, 'timestampType' => 'CREATE_TIME',
                    'key' => base64_encode('k'), 'value' => base64_encode("\xff"), 'headers' => [['headerKey' => [104, -61, -68]]]],
                ['topic' => 'mytopic', 'partition' => 0, 'offset' => 16, 'timestamp' => 1545084650988, 'value' => null],
            ],
            'mytopic-1' => [['topic' => 'mytopic', 'partition' => 1, 'offset' => 3, 'value' => base64_encode('v')]],
        ]]))->getRecords();
        $this->assertSame([15, 16, 3], array_map(static fn ($record): int => $record->getOffset(), $records));
        $this->assertSame(['mytopic', 0, 1545084650987], [$records[0]->getTopic(), $records[0]->getPartition(), $records[0]->getTimestamp()]);
        $this->assertSame(['k', "\xff", ['headerKey' => 'hü']], [$records[0]->getKey(), $records[0]->getValue(), $records[0]->getHeaders()]);
        $this->assertSame(['', null, []], [$records[1]->getKey(), $records[1]->getValue(), $records[1]->getHeaders()]);
        $this->assertSame([], (new KafkaEvent(['eventSource' => 'SelfManagedKafka', 'records' => []]))->getRecords());
    }

    public function testAMessageOnAWebSocket(): void
    {
        $event = new WebsocketEvent(Samples::websocket('MESSAGE', 'aGk=', true));
        $this->assertSame('hi', $event->getBody());
        $this->assertSame(['$default', 'MESSAGE', 'Fc5SzcQYGj0CFXg='], [$event->getRouteKey(), $event->getEventType(), $event->getConnectionId()]);
        $this->assertSame(['abc.execute-api.eu-west-1.amazonaws.com', 'abc', 'prod'], [$event->getDomainName(), $event->getApiId(), $event->getStage()]);
        $this->assertSame('eu-west-1', $event->getRegion());
        $this->assertNull((new WebsocketEvent(Samples::websocket('CONNECT', null)))->getBody());
    }

    public function testEventsOfOtherKindsAreRefusedWithoutTellingWhatIsInThem(): void
    {
        $classes = [SqsEvent::class, SnsEvent::class, S3Event::class, EventBridgeEvent::class, DynamoDbEvent::class, KinesisEvent::class, KafkaEvent::class, WebsocketEvent::class];
        $others = [null, 'secret', 7, [], ['Records' => 'secret'], ['Records' => ['secret']], ['Records' => [['eventSource' => 'aws:other', 'body' => 'secret']]],
            ['Records' => [['eventSource' => ['secret']]]], ['eventSource' => 'aws:kafka', 'records' => ['t-0' => ['secret']]], ['detail-type' => 'a', 'source' => 'secret'],
            ['requestContext' => 'secret'], ['requestContext' => ['connectionId' => 'secret']]];
        foreach ($classes as $class) {
            foreach ($others as $event) {
                try {
                    new $class($event);
                    $this->fail("{$class} took " . json_encode($event));
                } catch (InvalidEvent $e) {
                    $this->assertStringNotContainsString('secret', $e->getMessage());
                }
            }
        }
    }

    public function testWhatShouldBeBase64AndIsNotIsRefused(): void
    {
        $event = Samples::kinesis(['a']);
        $event['Records'][0]['kinesis']['data'] = 'not base64!';
        $this->expectException(InvalidEvent::class);
        (new KinesisEvent($event))->getRecords()[0]->getRawData();
    }
}
