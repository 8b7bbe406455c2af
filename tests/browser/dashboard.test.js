/** The dashboard in a browser: live figures, clients' data shown as text, both colour schemes, a
 * phone, and no script at all. */
import assert from 'node:assert/strict';
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { request } from 'node:http';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import { browser, hearth, until } from './servers.js';

let server, chromium, folder;

const SCRIPT = '<?php if (isset($_GET["die"])) { posix_kill(getmypid(), SIGKILL); } usleep((int) ($_GET["us"] ?? 500)); echo "hello";';

before(async () => {
    folder = mkdtempSync(join(tmpdir(), 'hearth-dashboard-'));
    mkdirSync(join(folder, 'public'));
    writeFileSync(join(folder, 'public/index.php'), SCRIPT);
    const args = ['serve', folder, '--listen', '127.0.0.1:0', '--admin', '127.0.0.1:0', '--model', 'request', '--workers', '2', '--app', '1:k:s'];
    server = await hearth(args, { cwd: folder });
    chromium = await browser();
});

after(async () => {
    await chromium?.close();
    await server?.stop();
    rmSync(folder, { recursive: true });
});

/** A page of the dashboard with its first figures, and the errors in it. */
async function dashboard(size, scheme) {
    const page = await chromium.newPage();
    const errors = [];
    page.on('pageerror', (error) => errors.push(error.message));
    page.on('console', (message) => message.type() === 'error' && errors.push(message.text()));
    page.on('request', (asked) => asked.url().startsWith(server.admin) || errors.push(`loads ${asked.url()}`));
    await page.emulateMediaFeatures([{ name: 'prefers-color-scheme', value: scheme }]);
    await page.setViewport(size);
    await page.goto(`${server.admin}/`);
    await until(page, () => document.querySelector('#line').textContent === 'live');
    return { page, errors };
}

const answered = (path) => fetch(`${server.url}${path}`).then((answer) => answer.text()).catch(() => '');
const picture = (page, name) => process.env.SCREENSHOT && page.screenshot({ path: `${process.env.SCREENSHOT}/${name}.png`, fullPage: true });

test('an operator sees load, a crash and who called what, live, in any size and colour', async () => {
    const { page, errors } = await dashboard({ width: 1200, height: 900 }, 'light');
    await until(page, () => document.querySelector('#problems').textContent === 'Nothing is wrong.');

    let loading = true;
    const load = Promise.all(
        [0, 1, 2].map(async () => {
            for (let count = 0; loading; count++) {
                await answered(`/orders/${count}?us=${count % 50 ? 2_000 : 150_000}`);
            }
        }),
    );
    const slow = answered('/<img src=x onerror=alert(1)><script>alert(2)<%2Fscript>?us=60000000&secret=hunter2');
    slow.catch(() => {});
    await until(page, () => [...document.querySelectorAll('#workers td')].some((cell) => cell.textContent.includes('onerror')));
    await until(page, () => Number.parseFloat(document.querySelector('#figures dd').textContent) > 1);
    // The first step of five seconds is whole.
    await until(page, () => document.querySelector('#charts polyline').points.length > 1);
    await answered('/?die=1');
    await until(page, () => document.querySelector('#problems li.error')?.textContent.includes('1 worker died'));
    await until(page, () => document.querySelector('#ended')?.textContent.includes('SIGKILL'));

    const content = await page.content();
    assert.ok(!content.includes('hunter2'), 'no query strings');
    assert.equal(await page.$('main img'), null, 'what clients send is text');
    assert.equal(await page.$('main script'), null);
    assert.ok((await page.$eval('#realtime', (part) => part.textContent)).includes('Channels, live'));
    await picture(page, 'dashboard-light');

    const dark = await dashboard({ width: 1200, height: 900 }, 'dark');
    await picture(dark.page, 'dashboard-dark');
    const phone = await dashboard({ width: 390, height: 800, isMobile: true, hasTouch: true }, 'light');
    const { scroll, width } = await phone.page.evaluate(() => ({ scroll: document.documentElement.scrollWidth, width: innerWidth }));
    assert.ok(scroll <= width, `the page is no wider than a phone: ${scroll} of ${width}`);
    await picture(phone.page, 'dashboard-phone');
    loading = false;
    await load;
    assert.deepEqual([...errors, ...dark.errors, ...phone.errors], []);
});

test('without a script it is a plain snapshot', async () => {
    const page = await chromium.newPage();
    await page.setJavaScriptEnabled(false);
    await page.goto(`${server.admin}/`);
    assert.match(await page.$eval('#workers', (part) => part.textContent), /Workers .*model request/);
    assert.match(await page.$eval('#figures', (part) => part.textContent), /Requests per second/);
});

test('what is marked stays while the figures go on', async () => {
    const { page } = await dashboard({ width: 1200, height: 900 }, 'light');
    await page.evaluate(() => getSelection().selectAllChildren(document.querySelector('#workers')));
    const marked = await page.evaluate(() => (globalThis.kept = document.querySelector('#workers table')) !== null);
    assert.ok(marked);
    const before = await page.$eval('#head', (part) => part.textContent);
    await until(page, (text) => document.querySelector('#head').textContent !== text, before);
    await until(page, (text) => document.querySelector('#head').textContent !== text, await page.$eval('#head', (part) => part.textContent));
    assert.ok(await page.evaluate(() => globalThis.kept.isConnected), 'the table that is marked is the same one');
});

test('a page of another origin can neither read, nor frame, nor reach it by a name of its own', async () => {
    const page = await chromium.newPage();
    await page.goto(server.url);
    const read = await page.evaluate((url) => fetch(url).then((answer) => answer.text(), () => 'refused'), `${server.admin}/status`);
    assert.equal(read, 'refused');
    const ask = (headers) =>
        new Promise((done, failed) => {
            const { port } = new URL(server.admin);
            const call = request({ host: '127.0.0.1', port, path: '/status', headers });
            call.on('response', (response) => (response.destroy(), done(response.statusCode)));
            call.on('error', failed);
            call.end();
        });
    assert.equal(await ask({ Host: 'rebound.example' }), 421);
    assert.equal(await ask({ Origin: server.url }), 403);
    await page.evaluate((url) => {
        const frame = document.createElement('iframe');
        frame.src = url;
        document.body.append(frame);
        return new Promise((loaded) => (frame.onload = loaded));
    }, `${server.admin}/`);
    const framed = page.frames().find((frame) => frame !== page.mainFrame());
    assert.ok(!(await framed.content()).includes('Hearth'), 'the frame stays empty');
});
