<?php

/** Hearth gets applications, and no other client does. */

declare(strict_types=1);

namespace Hearth\Tests;

use Hearth\Realtime\Applications;
use Hearth\Realtime\LookUp;
use PHPUnit\Framework\TestCase;

final class LookUpTest extends TestCase implements Applications
{
    private const VARIABLE = 'HEARTH_REALTIME_LOOKUP_TOKEN';
    private const TOKEN = 'a token of sixteen and more';

    public function withKey(string $key): ?array
    {
        return $key === 'known' ? ['id' => '1', 'key' => $key, 'secret' => 's'] : null;
    }

    public function withId(string $id): ?array
    {
        return $id === '1' ? ['id' => $id, 'key' => 'known', 'secret' => 's', 'origins' => ['a.example']] : null;
    }

    protected function tearDown(): void
    {
        putenv(self::VARIABLE);
    }

    public function testHearthIsToldWhichApplicationThereIs(): void
    {
        $lookUp = new LookUp($this, self::TOKEN);
        $bearer = 'Bearer ' . self::TOKEN;
        $this->assertSame([200, '{"id":"1","key":"known","secret":"s"}'], $lookUp->answer(['key' => 'known'], $bearer));
        $this->assertSame([200, '{"id":"1","key":"known","secret":"s","origins":["a.example"]}'], $lookUp->answer(['id' => '1'], $bearer));
        $this->assertSame([200, 'null'], $lookUp->answer(['key' => 'unknown'], $bearer));
        $this->assertSame([200, 'null'], $lookUp->answer(['id' => '2'], $bearer));
        $this->assertSame(400, $lookUp->answer(['key' => ['known']], $bearer)[0]);
        $this->assertSame(400, $lookUp->answer([], $bearer)[0]);
    }

    public function testNobodyElseIsTold(): void
    {
        $lookUp = new LookUp($this, self::TOKEN);
        foreach (['', 'Bearer ', 'Bearer', self::TOKEN, 'Bearer ' . self::TOKEN . 'x', 'bearer ' . self::TOKEN] as $authorization) {
            $this->assertSame(403, $lookUp->answer(['key' => 'known'], $authorization)[0], $authorization);
        }
        foreach ([null, ''] as $none) {
            $this->assertSame(403, (new LookUp($this, $none))->answer(['key' => 'known'], 'Bearer ')[0]);
        }
    }

    public function testTheTokenThatHearthHasGivenThisProcessCounts(): void
    {
        putenv(self::VARIABLE . '=drawn at the start');
        $lookUp = new LookUp($this, self::TOKEN);
        $this->assertSame(200, $lookUp->answer(['key' => 'known'], 'Bearer drawn at the start')[0]);
        $this->assertSame(403, $lookUp->answer(['key' => 'known'], 'Bearer ' . self::TOKEN)[0]);
    }
}
