/** HTTP/3 in Chromium: a page, its files, PHP, an upload and many requests side by side come over QUIC. */
import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { createHash, X509Certificate } from 'node:crypto';
import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import { browser, hearth } from './servers.js';

let server, chromium, folder, origin;

before(async () => {
    folder = mkdtempSync(join(tmpdir(), 'hearth-http3-'));
    const [certificate, key] = [join(folder, 'certificate.pem'), join(folder, 'key.pem')];
    const self = ['-x509', '-newkey', 'ec', '-pkeyopt', 'ec_paramgen_curve:P-256', '-nodes', '-days', '2', '-subj', '/CN=localhost'];
    const names = ['-addext', 'subjectAltName=DNS:localhost'];
    execFileSync('openssl', ['req', ...self, ...names, '-keyout', key, '-out', certificate], { stdio: 'ignore' });
    mkdirSync(join(folder, 'public'));
    writeFileSync(join(folder, 'public/style.css'), 'body { color: rgb(1, 2, 3) }');
    writeFileSync(
        join(folder, 'public/index.php'),
        `<?php if ($_SERVER['REQUEST_METHOD'] === 'POST') {
            echo $_SERVER['SERVER_PROTOCOL'], ' ', hash('sha256', file_get_contents('php://input'));
        } else {
            echo '<!doctype html><link rel="stylesheet" href="/style.css"><p>', $_SERVER['SERVER_PROTOCOL'];
        }`,
    );
    const tls = ['--tls-cert', certificate, '--tls-key', key, '--http3'];
    server = await hearth(['serve', folder, '--listen', 'https://127.0.0.1:0', '--workers', '2', '--model', 'request', ...tls]);
    const { port } = new URL(server.url);
    origin = `https://localhost:${port}`;
    const spki = new X509Certificate(readFileSync(certificate)).publicKey.export({ type: 'spki', format: 'der' });
    chromium = await browser([
        '--enable-quic',
        `--origin-to-force-quic-on=localhost:${port}`,
        `--ignore-certificate-errors-spki-list=${createHash('sha256').update(spki).digest('base64')}`,
        '--host-resolver-rules=MAP localhost 127.0.0.1',
    ]);
});

after(async () => {
    await chromium?.close();
    await server?.stop();
    rmSync(folder, { recursive: true, force: true });
});

test('a page, its style and an upload come over HTTP/3', async () => {
    const page = await chromium.newPage();
    const answer = await page.goto(`${origin}/`);
    assert.equal(answer.status(), 200);
    assert.equal(await page.$eval('p', (text) => text.textContent), 'HTTP/3.0');
    assert.equal(await page.$eval('body', (body) => getComputedStyle(body).color), 'rgb(1, 2, 3)');
    const protocols = await page.evaluate(() =>
        [...performance.getEntriesByType('navigation'), ...performance.getEntriesByType('resource')].map((entry) => entry.nextHopProtocol),
    );
    assert.deepEqual([...new Set(protocols)], ['h3']);

    const bytes = Buffer.alloc(3_000_000, 'hearth');
    const said = await page.evaluate(async () => {
        const body = new TextEncoder().encode('hearth'.repeat(500_000));
        return (await fetch('/', { method: 'POST', body })).text();
    });
    assert.equal(said, `HTTP/3.0 ${createHash('sha256').update(bytes).digest('hex')}`);

    // Many at once, side by side on one connection.
    const all = await page.evaluate(() => Promise.all(Array.from({ length: 50 }, (_, number) => fetch(`/?${number}`).then((answer) => answer.text()))));
    assert.ok(all.every((text) => text.endsWith('HTTP/3.0')));
});
