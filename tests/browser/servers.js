/** A `hearth` for one test, and a browser that people see the page in. */
import { spawn } from 'node:child_process';
import { existsSync } from 'node:fs';
import { connect, createServer } from 'node:net';
import puppeteer from 'puppeteer-core';

const CHROMIUM = [process.env.CHROMIUM, '/usr/bin/chromium', '/usr/bin/chromium-browser', '/usr/bin/google-chrome'].find(
    (path) => path && existsSync(path),
);

/** Starts it and waits for its ready line. `options.settings`: variables of its environment. */
export async function hearth(args, options = {}) {
    const env = Object.fromEntries(Object.entries(process.env).filter(([name]) => !name.startsWith('HEARTH_')));
    Object.assign(env, { HEARTH_LOG_FORMAT: 'text' }, options.settings);
    if (process.env.HEARTH_WORKER_DIR) {
        env.HEARTH_LIB_DIR = process.env.HEARTH_WORKER_DIR;
    }
    const server = spawn(process.env.HEARTH_BIN ?? 'hearth', args, { ...options, env });
    let said = '';
    const url = await new Promise((ready, failed) => {
        server.on('exit', () => failed(new Error(said)));
        server.stderr.on('data', (text) => {
            said += text;
            const match = /ready on (\S+)/.exec(said);
            if (match) {
                ready(match[1]);
            }
        });
    });
    server.removeAllListeners('exit');
    return {
        url,
        admin: /admin on (\S+)/.exec(said)?.[1],
        log: () => said,
        stop: () =>
            new Promise((gone) => {
                server.on('exit', gone);
                server.kill('SIGTERM');
            }),
    };
}

/** A line to a server that can be cut. */
export async function line(url) {
    const { hostname, port } = new URL(url);
    const sockets = new Set();
    let down = false;
    const server = createServer((client) => {
        if (down) {
            client.destroy();
            return;
        }
        const far = connect(Number(port), hostname);
        for (const [one, other] of [[client, far], [far, client]]) {
            sockets.add(one);
            one.pipe(other);
            one.on('error', () => other.destroy());
            one.on('close', () => (other.destroy(), sockets.delete(one)));
        }
    });
    await new Promise((listening) => server.listen(0, '127.0.0.1', listening));
    return {
        url: `http://127.0.0.1:${server.address().port}`,
        cut: () => {
            down = true;
            sockets.forEach((socket) => socket.destroy());
        },
        mend: () => (down = false),
        end: () => (sockets.forEach((socket) => socket.destroy()), server.close()),
    };
}

/** `flags`: further arguments of Chromium. */
export const browser = (flags = []) =>
    puppeteer.launch({ executablePath: CHROMIUM, args: ['--no-sandbox', '--disable-gpu', '--disable-dev-shm-usage', ...flags] });

/** Waits in the page until it is so. */
export const until = (page, so, ...args) => page.waitForFunction(so, { timeout: 30_000, polling: 50 }, ...args);
