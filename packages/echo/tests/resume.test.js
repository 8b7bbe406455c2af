/** The plug-in with the real pusher-js and laravel-echo, against a real `hearth channels` whose connections break. */
import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { createHash, createHmac } from 'node:crypto';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import Echo from 'laravel-echo';
import Pusher from 'pusher-js';
import { resume } from '../resume.js';

const HISTORY = 4;
let folder, server, port;

before(async () => {
    folder = mkdtempSync(join(tmpdir(), 'hearth-echo-'));
    writeFileSync(join(folder, 'hearth.toml'), `[realtime.apps.1]\nkey = "k"\nsecret = "s"\nhistory_events = ${HISTORY}\nhistory_channels = "kept-"\n`);
    const env = Object.fromEntries(Object.entries(process.env).filter(([name]) => !name.startsWith('HEARTH_')));
    server = spawn(process.env.HEARTH_BIN ?? 'hearth', ['channels', '--listen', '127.0.0.1:0', '--log-format', 'text'], { cwd: folder, env });
    let said = '';
    port = await new Promise((ready, failed) => {
        server.on('exit', () => failed(new Error(said)));
        server.stderr.on('data', (text) => {
            said += text;
            const match = /ready on http:\/\/[^:]+:(\d+)/.exec(said);
            if (match) {
                ready(Number(match[1]));
            }
        });
    });
});

after(() => {
    server.removeAllListeners('exit');
    server.kill('SIGKILL');
    rmSync(folder, { recursive: true });
});

async function publish(channel, n) {
    const body = JSON.stringify({ name: 'said', channel, data: JSON.stringify({ n }) });
    const md5 = createHash('md5').update(body).digest('hex');
    const query = `auth_key=k&auth_timestamp=${Math.floor(Date.now() / 1000)}&auth_version=1.0&body_md5=${md5}`;
    const signature = createHmac('sha256', 's').update(`POST\n/apps/1/events\n${query}`).digest('hex');
    const answer = await fetch(`http://127.0.0.1:${port}/apps/1/events?${query}&auth_signature=${signature}`, { method: 'POST', body });
    assert.equal(answer.status, 200, await answer.text());
}

const options = () => ({ wsHost: '127.0.0.1', wsPort: port, forceTLS: false, enabledTransports: ['ws'], cluster: '' });
const until = async (what, so) => {
    for (let i = 0; !so(); i++) {
        assert.ok(i < 1500, `never: ${what}`);
        await new Promise((later) => setTimeout(later, 20));
    }
};

/** Cuts the connection under pusher-js, as a network does. */
function cut(pusher) {
    pusher.connection.connection.transport.socket.close();
}

for (const [name, client] of [
    ['pusher-js', () => new Pusher('k', options())],
    ['laravel-echo', () => new Echo({ broadcaster: 'pusher', client: new Pusher('k', options()), key: 'k' })],
]) {
    test(`${name} gets what it missed, once and in order`, async () => {
        const both = client();
        const gaps = [];
        const pusher = resume(both, { onGap: (channel) => gaps.push(channel) });
        const channel = `kept-${name}`;
        const heard = [];
        let subscribed = 0;
        const subscription = pusher.subscribe(channel);
        subscription.bind('said', ({ n }) => heard.push(n));
        subscription.bind('pusher:subscription_succeeded', () => subscribed++);
        await until('subscribed', () => subscribed === 1);
        await publish(channel, 1);
        await until('the first is heard', () => heard.length === 1);

        for (const [round, missed] of [[2, [2, 3]], [3, [4, 5, 6]]]) {
            pusher.disconnect();
            for (const n of missed) {
                await publish(channel, n);
            }
            pusher.connect();
            await until('subscribed again', () => subscribed === round);
            await until('what was missed is heard', () => heard.length === missed.at(-1));
        }
        cut(pusher);
        await publish(channel, 7);
        await until('back by itself', () => heard.length === 7);
        await publish(channel, 8);
        await until('and hears what is new', () => heard.length === 8);
        assert.deepEqual(heard, [1, 2, 3, 4, 5, 6, 7, 8]);
        assert.deepEqual(gaps, []);

        // More events than the history keeps: the gap is reported.
        pusher.disconnect();
        for (let n = 9; n <= 9 + HISTORY; n++) {
            await publish(channel, n);
        }
        pusher.connect();
        await until('the gap is told', () => gaps.length === 1);
        await publish(channel, 99);
        await until('what is new is heard', () => heard.at(-1) === 99);
        assert.deepEqual([heard.length, gaps], [9, [channel]]);
        pusher.disconnect();
    });
}

test('a channel without history is as it was', async () => {
    const pusher = resume(new Pusher('k', options()));
    const heard = [];
    pusher.subscribe('plain').bind('said', ({ n }) => heard.push(n));
    let sent;
    pusher.send_event = ((send) => function (name, data, channel) {
        sent = data;
        return send.call(this, name, data, channel);
    })(pusher.send_event);
    await until('subscribed', () => pusher.channel('plain').subscribed);
    await publish('plain', 1);
    await until('heard', () => heard.length === 1);
    pusher.disconnect();
    pusher.connect();
    await until('subscribed again', () => sent !== undefined && pusher.channel('plain').subscribed);
    assert.equal(sent.resume, undefined);
    pusher.disconnect();
});
