<?php

/**
 * What Lambda says of an invocation beside its event. Needs nothing but itself: Hearth carries a copy for functions without packages.
 */

declare(strict_types=1);

namespace Hearth\Lambda;

final class Context implements \JsonSerializable
{
    /**
     * @param int $deadlineMs when Lambda ends the invocation: milliseconds since 1970
     * @param mixed $clientContext what a mobile SDK sent, decoded
     * @param mixed $identity the Cognito identity, decoded
     * @param ?string $tenantId of a function with tenant isolation
     */
    public function __construct(
        public readonly string $awsRequestId,
        public readonly int $deadlineMs = 0,
        public readonly string $invokedFunctionArn = '',
        public readonly string $traceId = '',
        public readonly mixed $clientContext = null,
        public readonly mixed $identity = null,
        public readonly ?string $tenantId = null,
    ) {
    }

    /** The one of the request that is served: out of `$_SERVER['LAMBDA_INVOCATION_CONTEXT']`, in HTTP applications as in functions. */
    public static function current(): self
    {
        $json = $_SERVER['LAMBDA_INVOCATION_CONTEXT'] ?? '';
        return self::fromArray((array) json_decode(is_string($json) ? $json : '', true));
    }

    /** @param array<mixed> $values as they stand in that variable */
    public static function fromArray(array $values): self
    {
        return new self(
            (string) ($values['awsRequestId'] ?? ''),
            (int) ($values['deadlineMs'] ?? 0),
            (string) ($values['invokedFunctionArn'] ?? ''),
            (string) ($values['traceId'] ?? ''),
            $values['clientContext'] ?? null,
            $values['identity'] ?? null,
            isset($values['tenantId']) ? (string) $values['tenantId'] : null,
        );
    }

    /** Creates a context for tests of handlers. */
    public static function fake(): self
    {
        return new self('fake-request-id', (int) (microtime(true) * 1000) + 300_000, 'arn:aws:lambda:us-east-1:123456789012:function:fake', 'fake-trace-id');
    }

    /** How long the invocation may still take: 0 when the time is over. */
    public function getRemainingTimeInMillis(): int
    {
        return max(0, $this->deadlineMs - (int) (microtime(true) * 1000));
    }

    public function getAwsRequestId(): string
    {
        return $this->awsRequestId;
    }

    public function getInvokedFunctionArn(): string
    {
        return $this->invokedFunctionArn;
    }

    public function getTraceId(): string
    {
        return $this->traceId;
    }

    /** @return array<string, mixed> */
    public function jsonSerialize(): array
    {
        return get_object_vars($this);
    }
}
