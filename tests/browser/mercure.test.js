/** Chromium's EventSource at the Mercure hub: it gets updates, and resumes after a cut. */
import assert from 'node:assert/strict';
import { createHmac } from 'node:crypto';
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import { browser, hearth, line, until } from './servers.js';

const KEY = 'a secret of more than sixteen characters'.replaceAll(' ', '-');
let server, chromium, folder, way;

before(async () => {
    folder = mkdtempSync(join(tmpdir(), 'hearth-mercure-'));
    mkdirSync(join(folder, 'public'));
    writeFileSync(join(folder, 'public/index.php'), '<!doctype html><title>updates</title><ol></ol>');
    const keys = `publisher_key = "${KEY}"\nsubscriber_key = "${KEY}"`;
    writeFileSync(join(folder, 'hearth.toml'), `[mercure]\nenabled = true\n${keys}\n`);
    server = await hearth(['serve', folder, '--listen', '127.0.0.1:0', '--workers', '1'], { cwd: folder });
    way = await line(server.url);
    chromium = await browser();
});

after(async () => {
    await chromium?.close();
    way?.end();
    await server?.stop();
    rmSync(folder, { recursive: true, force: true });
});

function token(claims) {
    const part = (value) => Buffer.from(JSON.stringify(value)).toString('base64url');
    const signed = `${part({ alg: 'HS256', typ: 'JWT' })}.${part({ mercure: claims })}`;
    return `${signed}.${createHmac('sha256', KEY).update(signed).digest('base64url')}`;
}

async function publish(update) {
    const answer = await fetch(`${server.url}/.well-known/mercure`, {
        method: 'POST',
        headers: { Authorization: `Bearer ${token({ publish: ['*'] })}` },
        body: new URLSearchParams(update),
    });
    assert.equal(answer.status, 200);
}

test('an EventSource with a cookie gets private updates and resumes after a cut', async () => {
    const page = await chromium.newPage();
    await page.goto(way.url);
    await page.evaluate((token) => {
        document.cookie = `mercureAuthorization=${token}; path=/.well-known/mercure`;
        const topic = encodeURIComponent('https://example.com/books/{id}');
        const source = new EventSource(`/.well-known/mercure?topic=${topic}`);
        globalThis.opened = 0;
        source.onopen = () => opened++;
        source.onmessage = ({ data }) => document.querySelector('ol').append(Object.assign(document.createElement('li'), { textContent: data }));
    }, token({ subscribe: ['https://example.com/books/{id}'] }));
    await until(page, () => opened === 1);
    const topic = 'https://example.com/books/1';
    const shows = (data) => until(page, (data) => document.querySelector('ol').lastChild?.textContent === data, data);
    await publish({ topic, data: 'one', private: 'on', retry: '100' });
    await shows('one');
    way.cut();
    await publish({ topic, data: 'two', private: 'on' });
    await publish({ topic: 'https://example.com/users/1', data: 'for others', private: 'on' });
    await publish({ topic, data: 'three' });
    way.mend();
    await shows('three');
    const lines = await page.$$eval('li', (all) => all.map((li) => li.textContent));
    assert.deepEqual(lines, ['one', 'two', 'three']);
});
