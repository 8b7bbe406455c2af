/** examples/laravel-chat in two browsers: each sees the other's actions, and a broken connection
 * loses no message. */
import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { browser, hearth, line, until } from './servers.js';

const example = new URL('../../examples/laravel-chat', import.meta.url).pathname;
let server, chromium;

before(async () => {
    server = await hearth(['serve', example, '--listen', '127.0.0.1:0', '--workers', '2']);
    chromium = await browser();
});

after(async () => {
    await chromium?.close();
    await server?.stop();
});

const said = (page) => page.$$eval('#messages li p', (all) => all.map((p) => p.textContent));
const sees = (page, text) =>
    until(page, (text) => [...document.querySelectorAll('#messages li p')].some((p) => p.textContent === text), text);

/** A visitor with separate cookies. */
async function visitor(url = server.url) {
    const context = await chromium.createBrowserContext();
    const page = await context.newPage();
    page.on('pageerror', (error) => console.error(`page: ${error.message}\n${server.log()}`));
    await page.goto(url);
    await until(page, () => document.body.dataset.connection === 'connected');
    return page;
}

async function say(page, name, text) {
    await page.$eval('input[name=author]', (input, name) => (input.value = name), name);
    await page.type('input[name=text]', text);
    await page.click('#say button');
    await sees(page, text);
}

test('two visitors see each other, what is said, who types, who waves, and what was said while a line was down', async (t) => {
    const run = `${Date.now()}`;
    const wire = await line(server.url);
    t.after(() => wire.end());
    const [ada, ben] = [await visitor(), await visitor(wire.url)];

    // Public: all visitors get the message, with a name or without.
    await say(ada, 'Ada', `hello ${run}`);
    await sees(ben, `hello ${run}`);
    assert.equal((await said(ada)).filter((text) => text === `hello ${run}`).length, 1, 'its author sees it once');

    // Presence: visitors with a name are shown.
    await say(ben, 'Ben', `hi Ada ${run}`);
    for (const page of [ada, ben]) {
        await until(page, () => {
            const names = [...document.querySelectorAll('#here button')].map((button) => button.textContent);
            return ['Ada', 'Ben'].every((name) => names.includes(name));
        });
    }

    // Whisper: from client to client.
    await ben.type('input[name=text]', 'I am');
    await until(ada, () => document.querySelector('#status').textContent.includes('Ben is typing'));
    if (process.env.SCREENSHOT) {
        await ada.screenshot({ path: `${process.env.SCREENSHOT}/chat.png` });
    }
    await ben.$eval('input[name=text]', (input) => (input.value = ''));

    // Private: a wave for one.
    await ben.evaluate(() => [...document.querySelectorAll('#here button')].find((button) => button.textContent === 'Ada').click());
    await until(ada, () => document.querySelector('#status').textContent === 'Ben waves at you.');

    // A broken connection: missed messages arrive after it is back, in order, once.
    wire.cut();
    await until(ben, () => document.body.dataset.connection !== 'connected');
    for (const n of [1, 2, 3]) {
        await say(ada, 'Ada', `meanwhile ${n} ${run}`);
    }
    await until(ada, () => ![...document.querySelectorAll('#here button')].some((button) => button.textContent === 'Ben'));
    wire.mend();
    await sees(ben, `meanwhile 3 ${run}`);
    const missed = (await said(ben)).filter((text) => text.startsWith('meanwhile') && text.endsWith(run));
    assert.deepEqual(missed, [1, 2, 3].map((n) => `meanwhile ${n} ${run}`));
});

test('a private channel reaches its own visitor only', async () => {
    const page = await visitor();
    await say(page, 'Eve', `I listen ${Date.now()}`);
    const status = await page.evaluate(async () => {
        const body = new FormData();
        body.set('channel_name', 'private-visitor.0123456789abcdef');
        body.set('socket_id', '1234.5678');
        body.set('_token', document.querySelector('meta[name="csrf-token"]').content);
        return (await fetch('/broadcasting/auth', { method: 'POST', headers: { Accept: 'application/json' }, body })).status;
    });
    assert.equal(status, 403);
});
