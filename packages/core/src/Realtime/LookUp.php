<?php

/** Answers Hearth's requests for an application (`realtime.lookup`), and no other client's: the answer holds a secret. */

declare(strict_types=1);

namespace Hearth\Realtime;

final class LookUp
{
    /** The variable that Hearth sets for its own PHP processes, and the setting's name in the
     * environment. */
    private const VARIABLE = 'HEARTH_REALTIME_LOOKUP_TOKEN';

    /** @param ?string $token `realtime.lookup_token`; if Hearth runs this process, the token that
     * Hearth has set is used instead */
    public function __construct(private readonly Applications $applications, #[\SensitiveParameter] private readonly ?string $token = null)
    {
    }

    /**
     * The answer: its status, and its body, which is `application/json`.
     *
     * @param array<string, mixed> $query of the request, as $_GET
     * @param string $authorization the request's header field
     * @return array{int, string}
     */
    public function answer(array $query, string $authorization): array
    {
        $token = getenv(self::VARIABLE) ?: (string) $this->token;
        if ($token === '' || !hash_equals("Bearer {$token}", $authorization)) {
            return [403, '{"error":"only Hearth is told"}'];
        }
        [$key, $id] = [$query['key'] ?? null, $query['id'] ?? null];
        if (is_string($key)) {
            $application = $this->applications->withKey($key);
        } elseif (is_string($id)) {
            $application = $this->applications->withId($id);
        } else {
            return [400, '{"error":"say which: ?key= or ?id="}'];
        }
        return [200, json_encode($application, JSON_THROW_ON_ERROR)];
    }
}
