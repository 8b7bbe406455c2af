<?php

/** The answer to Lambda about a batch: the records to deliver again. */

declare(strict_types=1);

namespace Hearth\Tests\Lambda;

use Hearth\Lambda\ApiGateway\WebsocketEvent;
use Hearth\Lambda\ApiGateway\WebsocketHandler;
use Hearth\Lambda\Context;
use Hearth\Lambda\DynamoDb\DynamoDbEvent;
use Hearth\Lambda\DynamoDb\DynamoDbHandler;
use Hearth\Lambda\EventBridge\EventBridgeEvent;
use Hearth\Lambda\EventBridge\EventBridgeHandler;
use Hearth\Lambda\Handler;
use Hearth\Lambda\Http\HttpResponse;
use Hearth\Lambda\InvalidEvent;
use Hearth\Lambda\Kafka\KafkaEvent;
use Hearth\Lambda\Kafka\KafkaHandler;
use Hearth\Lambda\Kinesis\KinesisEvent;
use Hearth\Lambda\Kinesis\KinesisHandler;
use Hearth\Lambda\S3\S3Event;
use Hearth\Lambda\S3\S3Handler;
use Hearth\Lambda\Sns\SnsEvent;
use Hearth\Lambda\Sns\SnsHandler;
use Hearth\Lambda\Sqs\SqsEvent;
use Hearth\Lambda\Sqs\SqsHandler;
use Hearth\Lambda\Sqs\SqsMessageHandler;
use Hearth\Lambda\Sqs\SqsRecord;
use PHPUnit\Framework\TestCase;

final class HandlersTest extends TestCase
{
    /** @return list<string> what is to be delivered again */
    private static function failures(Handler $handler, mixed $event): array
    {
        $answer = json_decode(json_encode($handler->handle($event, Context::fake())), true);
        return array_column($answer['batchItemFailures'], 'itemIdentifier');
    }

    /** A handler that marks the messages whose body is `bad`. */
    private static function marking(): SqsHandler
    {
        return new class extends SqsHandler {
            public function handleSqs(SqsEvent $event, Context $context): void
            {
                foreach ($event->getRecords() as $record) {
                    if ($record->getBody() === 'bad') {
                        $this->markAsFailed($record);
                    }
                }
            }
        };
    }

    public function testMessagesThatAreMarkedAreDeliveredAgainAndNoOthers(): void
    {
        $handler = self::marking();
        $this->assertSame(['m2'], self::failures($handler, Samples::sqs(['good', 'bad', 'good'])));
        $this->assertSame([], self::failures($handler, Samples::sqs(['good'])), 'the last batch is forgotten');
        $this->assertSame('{"batchItemFailures":[]}', json_encode($handler->handle(Samples::sqs(['good']), Context::fake())));
    }

    public function testOfAFifoQueueWhatFollowsAFailureInItsGroupIsDeliveredAgain(): void
    {
        $event = Samples::sqs(['good', 'bad', 'good', 'good', 'good'], ['a', 'b', 'a', 'b', 'b']);
        $this->assertEqualsCanonicalizing(['m2', 'm4', 'm5'], self::failures(self::marking(), $event));
    }

    public function testAMessageThatThrowsStopsNoOther(): void
    {
        $handler = self::throwing();
        $this->assertSame(['m1', 'm3'], self::quietly(static fn (): array => self::failures($handler, Samples::sqs(['bad', 'b', 'bad', 'd']))));
        $this->assertSame(['bad', 'b', 'bad', 'd'], $handler->seen);
    }

    public function testOfAFifoQueueTheRestOfAGroupIsNotBegun(): void
    {
        $handler = self::throwing();
        $event = Samples::sqs(['bad', 'b', 'c', 'd'], ['x', 'x', 'y', 'x']);
        $this->assertEqualsCanonicalizing(['m1', 'm2', 'm4'], self::quietly(static fn (): array => self::failures($handler, $event)));
        $this->assertSame(['bad', 'c'], $handler->seen);
    }

    public function testAMessageIsMarkedWhileItsBatchIsHandledOnly(): void
    {
        $handler = new class extends SqsHandler {
            public ?SqsRecord $kept = null;

            public function handleSqs(SqsEvent $event, Context $context): void
            {
                $this->kept = $event->getRecords()[0];
                throw new \RuntimeException('the whole batch failed');
            }

            public function later(): void
            {
                $this->markAsFailed($this->kept);
            }
        };
        try {
            $handler->handle(Samples::sqs(['a']), Context::fake());
            $this->fail('it has not thrown');
        } catch (\RuntimeException $e) {
            $this->assertSame('the whole batch failed', $e->getMessage());
        }
        $this->expectException(\LogicException::class);
        $handler->later();
    }

    public function testAMessageWithoutAnIdCannotBeMarked(): void
    {
        $event = Samples::sqs(['bad']);
        unset($event['Records'][0]['messageId']);
        $this->expectException(\InvalidArgumentException::class);
        self::marking()->handle($event, Context::fake());
    }

    public function testRecordsOfStreamsAreMarkedByTheirSequenceNumbers(): void
    {
        $kinesis = new class extends KinesisHandler {
            public function handleKinesis(KinesisEvent $event, Context $context): void
            {
                $this->markAsFailed($event->getRecords()[1]);
            }
        };
        $this->assertSame(['s1'], self::failures($kinesis, Samples::kinesis(['a', 'b', 'c'])));
        $dynamoDb = new class extends DynamoDbHandler {
            public function handleDynamoDb(DynamoDbEvent $event, Context $context): void
            {
                $this->markAsFailed($event->getRecords()[1]);
            }
        };
        // Still a string, although it looks like a number.
        $this->assertSame(['4421584500000000017450439092'], self::failures($dynamoDb, Samples::dynamoDb(['1', '4421584500000000017450439092'])));
        $this->assertSame(['222'], self::failures($dynamoDb, Samples::dynamoDb(['111', '222'])));
    }

    public function testTheOtherHandlersGetTheirEvents(): void
    {
        $handlers = [
            [new class extends SnsHandler {
                public function handleSns(SnsEvent $event, Context $context): void
                {
                    HandlersTest::$seen = $event->getRecords()[0]->getMessage();
                }
            }, ['Records' => [['EventSource' => 'aws:sns', 'Sns' => ['Message' => 'x']]]]],
            [new class extends S3Handler {
                public function handleS3(S3Event $event, Context $context): void
                {
                    HandlersTest::$seen = $event->getRecords()[0]->getObject()->getKey();
                }
            }, ['Records' => [['eventSource' => 'aws:s3', 's3' => ['object' => ['key' => 'x']]]]]],
            [new class extends EventBridgeHandler {
                public function handleEventBridge(EventBridgeEvent $event, Context $context): void
                {
                    HandlersTest::$seen = $event->getDetail();
                }
            }, ['detail-type' => 't', 'source' => 's', 'detail' => 'x']],
            [new class extends KafkaHandler {
                public function handleKafka(KafkaEvent $event, Context $context): void
                {
                    HandlersTest::$seen = $event->getRecords()[0]->getValue();
                }
            }, ['eventSource' => 'aws:kafka', 'records' => ['t-0' => [['value' => 'eA==']]]]],
        ];
        foreach ($handlers as [$handler, $event]) {
            self::$seen = null;
            $this->assertNull($handler->handle($event, Context::fake()));
            $this->assertSame('x', self::$seen, get_parent_class($handler));
            try {
                $handler->handle(['something' => 'else'], Context::fake());
                $this->fail(get_parent_class($handler) . ' takes anything');
            } catch (InvalidEvent $e) {
                $this->assertStringContainsString('an object with something', $e->getMessage());
            }
        }
    }

    public function testAWebSocketHandlerAnswersAsApiGatewayWants(): void
    {
        $handler = new class extends WebsocketHandler {
            public function handleWebsocket(WebsocketEvent $event, Context $context): HttpResponse
            {
                return new HttpResponse("got {$event->getBody()}", ['X-A' => ['1', '2']], 201);
            }
        };
        $answer = $handler->handle(Samples::websocket('MESSAGE', 'hi'), Context::fake());
        $this->assertSame('{"statusCode":201,"headers":{"X-A":"1, 2"},"body":"got hi"}', json_encode($answer));
    }

    public function testAContextSaysWhatLambdaSays(): void
    {
        $soon = (int) (microtime(true) * 1000) + 60_000;
        $_SERVER['LAMBDA_INVOCATION_CONTEXT'] = json_encode(['awsRequestId' => 'id', 'deadlineMs' => $soon, 'invokedFunctionArn' => 'arn', 'traceId' => 'Root=1',
            'clientContext' => ['client' => ['app_title' => 'a']], 'identity' => null, 'tenantId' => 't']);
        $context = Context::current();
        unset($_SERVER['LAMBDA_INVOCATION_CONTEXT']);
        $this->assertSame(['id', 'arn', 'Root=1', 't'], [$context->getAwsRequestId(), $context->getInvokedFunctionArn(), $context->getTraceId(), $context->tenantId]);
        $this->assertSame('a', $context->clientContext['client']['app_title']);
        $this->assertGreaterThan(0, $context->getRemainingTimeInMillis());
        $this->assertLessThanOrEqual(60_000, $context->getRemainingTimeInMillis());
        $this->assertSame(0, (new Context('id', $soon - 120_000))->getRemainingTimeInMillis());
        $this->assertSame('', Context::current()->getAwsRequestId());
        $this->assertSame($soon, json_decode(json_encode($context), true)['deadlineMs']);
    }

    public static mixed $seen = null;

    private static function throwing(): SqsMessageHandler
    {
        return new class extends SqsMessageHandler {
            /** @var list<string> */
            public array $seen = [];

            public function handleMessage(SqsRecord $record, Context $context): void
            {
                $this->seen[] = $record->getBody();
                if ($record->getBody() === 'bad') {
                    throw new \RuntimeException('bad message');
                }
            }
        };
    }

    /** Returns the result without the handler's log lines. */
    private static function quietly(callable $do): mixed
    {
        $log = tempnam(sys_get_temp_dir(), 'log');
        $before = ini_set('error_log', $log);
        try {
            $result = $do();
            self::assertStringContainsString('Message m1 failed: RuntimeException: bad message', (string) file_get_contents($log));
            return $result;
        } finally {
            ini_set('error_log', (string) $before);
            unlink($log);
        }
    }
}
