/** `hearth serve --dev` in a browser: an open page shows an edit, a failed boot, and its repair, without a click. */
import assert from 'node:assert/strict';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import { browser, hearth, until } from './servers.js';

let server, chromium, folder;

/** Writes a worker script whose boot runs `boot`, and whose page says `text`. */
const edit = (text, boot = '') =>
    writeFileSync(join(folder, 'worker.php'), `<?php ${boot}\nwhile (hearth_handle_request(function () { echo '<h1>${text}</h1>'; })) { }`);

before(async () => {
    folder = mkdtempSync(join(tmpdir(), 'hearth-development-'));
    edit('one');
    server = await hearth(['serve', folder, '--dev', '--listen', '127.0.0.1:0', '--workers', '1'], { cwd: folder });
    chromium = await browser();
});

after(async () => {
    await chromium?.close();
    await server?.stop();
    rmSync(folder, { recursive: true });
});

test('an open page follows edits and shows why a boot fails', async () => {
    const page = await chromium.newPage();
    const errors = [];
    page.on('pageerror', (error) => errors.push(error.message));
    await page.goto(server.url);
    const shows = (text) => until(page, (text) => document.body.textContent.includes(text), text);
    await shows('one');
    edit('two');
    await shows('two');
    edit('three', "throw new RuntimeException('no <b>database</b>');");
    await shows('no <b>database</b> in');
    assert.match(await page.$eval('body', (body) => body.textContent), /worker\.php:1/);
    edit('four');
    await shows('four');
    assert.deepEqual(errors, []);
});
