<?php

/**
 * Signs HTTP requests to AWS: Signature Version 4, in header fields, for every service except S3 (which does not encode paths
 * twice). https://docs.aws.amazon.com/IAM/latest/UserGuide/reference_sigv-create-signed-request.html
 */

declare(strict_types=1);

namespace Hearth\Lambda\ApiGateway;

final class Signer
{
    public function __construct(
        private readonly string $accessKey,
        #[\SensitiveParameter] private readonly string $secretKey,
        #[\SensitiveParameter] private readonly ?string $sessionToken,
        private readonly string $region,
        private readonly string $service,
    ) {
    }

    /** Creates a signer with the credentials in a function's environment. */
    public static function fromEnvironment(string $region, string $service): self
    {
        $read = static fn (string $name): string => (string) getenv($name);
        [$access, $secret, $token] = array_map($read, ['AWS_ACCESS_KEY_ID', 'AWS_SECRET_ACCESS_KEY', 'AWS_SESSION_TOKEN']);
        if ($access === '' || $secret === '') {
            throw new \LogicException('No credentials to sign with: AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY are not set.');
        }
        return new self($access, $secret, $token === '' ? null : $token, $region, $service);
    }

    /**
     * @param string $url absolute; its path is encoded as it will be sent
     * @param array<string, string> $headers names in lower case, `host` excepted
     * @return array<string, string> these headers and those to add
     */
    public function sign(string $method, string $url, string $body, array $headers = [], ?int $now = null): array
    {
        $part = parse_url($url);
        $time = gmdate('Ymd\THis\Z', $now ?? time());
        $day = substr($time, 0, 8);
        $headers['x-amz-date'] = $time;
        if ($this->sessionToken !== null) {
            $headers['x-amz-security-token'] = $this->sessionToken;
        }
        $signed = $headers + ['host' => $part['host'] . (isset($part['port']) ? ":{$part['port']}" : '')];
        ksort($signed, SORT_STRING);
        $lines = '';
        foreach ($signed as $name => $value) {
            $lines .= "{$name}:" . preg_replace('/ +/', ' ', trim($value)) . "\n";
        }
        $names = implode(';', array_keys($signed));
        $path = str_replace('%2F', '/', rawurlencode($part['path'] ?? '/'));
        $query = explode('&', $part['query'] ?? '');
        sort($query, SORT_STRING);
        $request = implode("\n", [$method, $path, implode('&', $query), $lines, $names, hash('sha256', $body)]);

        $scope = "{$day}/{$this->region}/{$this->service}/aws4_request";
        $text = "AWS4-HMAC-SHA256\n{$time}\n{$scope}\n" . hash('sha256', $request);
        $key = "AWS4{$this->secretKey}";
        foreach ([$day, $this->region, $this->service, 'aws4_request'] as $of) {
            $key = hash_hmac('sha256', $of, $key, true);
        }
        $signature = hash_hmac('sha256', $text, $key);
        $headers['authorization'] = "AWS4-HMAC-SHA256 Credential={$this->accessKey}/{$scope}, SignedHeaders={$names}, Signature={$signature}";
        return $headers;
    }
}
