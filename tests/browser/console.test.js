/** The debug console in a browser: figures, channels, members, an event sent, one channel watched. */
import assert from 'node:assert/strict';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import { WebSocket } from 'ws';
import { browser, hearth, until } from './servers.js';

const TOKEN = '0123456789abcdef';

let server, chromium, folder, socket;

before(async () => {
    folder = mkdtempSync(join(tmpdir(), 'hearth-console-'));
    server = await hearth(['channels', '--listen', '127.0.0.1:0', '--admin', '127.0.0.1:0', '--app', '1:k:s', '--app', '2:k2:s2'], {
        cwd: folder,
        settings: { HEARTH_ADMIN_TOKEN: TOKEN },
    });
    chromium = await browser();
});

after(async () => {
    socket?.close();
    await chromium?.close();
    await server?.stop();
    rmSync(folder, { recursive: true });
});

/** A client of a public channel, and the events that it gets. */
async function client(channel) {
    const heard = [];
    socket = new WebSocket(`${server.url.replace('http', 'ws')}/app/k?protocol=7`);
    await new Promise((subscribed) => {
        socket.onmessage = ({ data }) => {
            const message = JSON.parse(data);
            if (message.event === 'pusher:connection_established') {
                socket.send(JSON.stringify({ event: 'pusher:subscribe', data: { channel } }));
            } else if (message.event === 'pusher_internal:subscription_succeeded') {
                subscribed();
            } else {
                heard.push(message);
            }
        };
    });
    return heard;
}

test('an operator sees channels, sends an event and watches one live', async () => {
    const page = await chromium.newPage();
    const errors = [];
    page.on('pageerror', (error) => errors.push(error.message));
    await page.setViewport({ width: 1100, height: 800 });
    // Answers the browser's prompt like a user.
    await page.authenticate({ username: 'operator', password: TOKEN });
    await page.goto(`${server.admin}/realtime`);
    await until(page, () => document.querySelector('#line').textContent === 'live');
    const heard = await client('news');
    await until(page, () => [...document.querySelectorAll('#channels tr')].some((row) => row.textContent === 'news1'));
    await until(page, () => document.querySelector('#figures dd').textContent === '1');
    assert.deepEqual(await page.$$eval('#app option', (all) => all.map((option) => option.value)), ['1', '2']);

    await page.click('#channels tr');
    await until(page, () => document.querySelector('#watched').textContent === 'news');
    await until(page, () => document.querySelector('#channels tr.watched')?.textContent === 'news2');
    await page.type('#send input[name=event]', 'said');
    await page.type('#send textarea', '{"text":"<b>hi</b>"}');
    await page.click('#send button');
    await until(page, () => document.querySelector('#messages li')?.textContent.includes('{"text":"<b>hi</b>"}'));
    assert.equal(await page.$('#messages li b b'), null, 'what is shown is text');
    assert.deepEqual(heard.map(({ event, data }) => [event, JSON.parse(data).text]), [['said', '<b>hi</b>']]);
    if (process.env.SCREENSHOT) {
        await page.screenshot({ path: `${process.env.SCREENSHOT}/console.png` });
    }

    await page.click('#stop');
    await until(page, () => document.querySelector('#channels tr')?.textContent === 'news1');
    assert.deepEqual(errors, []);
});

test('only its own page can send', async () => {
    const wish = JSON.stringify({ app: '1', channel: 'news', event: 'forged', data: '1' });
    const known = { Authorization: `Bearer ${TOKEN}` };
    const send = (headers) => fetch(`${server.admin}/realtime/publish`, { method: 'POST', headers: { ...known, ...headers }, body: wish });
    assert.equal((await send({ 'Content-Type': 'text/plain' })).status, 415);
    assert.equal((await send({ 'Content-Type': 'application/json' })).status, 200);
    assert.equal((await send({ 'Content-Type': 'application/json', Origin: 'https://evil.example' })).status, 403);
    assert.equal((await send({ 'Content-Type': 'application/json', Authorization: 'Bearer wrong' })).status, 401);
});
