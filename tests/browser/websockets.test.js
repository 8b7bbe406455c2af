/** examples/websocket-chat in two browsers: PHP handles their WebSockets, through a reload of the application, too. */
import assert from 'node:assert/strict';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import { browser, hearth, until } from './servers.js';

const example = new URL('../../examples/websocket-chat', import.meta.url).pathname;
let server, chromium, folder;

before(async () => {
    folder = mkdtempSync(join(tmpdir(), 'hearth-chat-'));
    const settings = { CHAT_DIR: folder };
    server = await hearth(['serve', example, '--listen', '127.0.0.1:0', '--workers', '2', '--model', 'snapshot'], { settings });
    chromium = await browser();
});

after(async () => {
    await chromium?.close();
    await server?.stop();
    rmSync(folder, { recursive: true, force: true });
});

const shows = (page, selector, text) =>
    until(page, (selector, text) => document.querySelector(selector).textContent.includes(text), selector, text);

/** A visitor with a window of their own: one in the background gets no input. */
async function visitor(name) {
    const page = await (await chromium.createBrowserContext()).newPage();
    page.on('pageerror', (error) => console.error(`page: ${error.message}\n${server.log()}`));
    await page.goto(server.url);
    await page.type('input[name=name]', name);
    await page.click('#enter button');
    await shows(page, '#state', 'connected');
    return page;
}

async function say(page, text) {
    await page.type('input[name=text]', text);
    await page.click('#say button');
}

test('two visitors talk, one learns who it is, and one leaves', async () => {
    const [ada, ben] = [await visitor('Ada'), await visitor('Ben <b>')];
    await shows(ada, '#here', 'Ben <b>');
    await say(ada, 'hello Ben');
    await shows(ben, '#messages', 'Ada: hello Ben');
    await say(ben, 'grüß dich 👋');
    await shows(ada, '#messages', 'Ben <b>: grüß dich 👋');

    // An answer is for its client only.
    await say(ben, '/me');
    await shows(ben, '#messages', 'You are Ben <b>');

    // Messages stay in order, whatever worker handles them.
    for (let number = 0; number < 10; number++) {
        await ada.evaluate((number) => socket.send(`line ${number}`), number);
    }
    await shows(ben, '#messages', 'Ada: line 9');
    const lines = await ben.$$eval('#messages li', (all) => all.map((li) => li.textContent));
    const numbered = lines.filter((line) => line.startsWith('Ada: line '));
    assert.deepEqual(numbered, Array.from({ length: 10 }, (_, number) => `Ada: line ${number}`));
    assert.ok(!(await ada.$$eval('#messages li', (all) => all.map((li) => li.textContent))).includes('You are Ben <b>'));

    await say(ben, '/quit');
    await shows(ben, '#state', 'closed 4000 you asked for it');
    await until(ada, () => document.querySelector('#here').textContent === 'Ada');
});

test('a page of another host cannot connect, and one without a name is refused', async () => {
    const page = await chromium.newPage();
    const foreign = server.url.replace('127.0.0.1', 'localhost');
    await page.goto(server.url);
    const code = (target) =>
        page.evaluate(
            (target) => new Promise((closed) => { new WebSocket(target).onclose = ({ code }) => closed(code); }),
            target,
        );
    const ws = server.url.replace('http:', 'ws:');
    assert.equal(await code(`${ws}/chat`), 1006);
    assert.equal(await code(`${foreign.replace('http:', 'ws:')}/chat?name=Eve`), 1006);
});
