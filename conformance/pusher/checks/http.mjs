// The HTTP API: "HTTP API reference", with its section on authentication signatures.

import http from 'node:http';
import net from 'node:net';
import { client } from './connection.mjs';
import { call, get, post, publish, request } from '../lib/api.mjs';
import { signedQuery } from '../lib/sign.mjs';
import { named, within } from '../lib/socket.mjs';
import { about, assert, check, fresh } from '../lib/suite.mjs';

const now = () => Math.floor(Date.now() / 1000);

/** A status, and words or JSON that explain it. */
function is(answer, ...statuses) {
    assert.ok(statuses.includes(answer.status), `status ${answer.status} instead of ${statuses.join(' or ')}: ${answer.text.slice(0, 200)}`);
    if (answer.status >= 400) {
        assert.ok(answer.text.trim().length > 0, 'the body explains nothing');
    }
}

const event = (more = {}) => ({ name: 'news', channel: fresh(), data: '{}', ...more });

about('authentication', () => {
    const posts = {
        'an unknown key': [401, { app: (app) => ({ ...app, key: 'nobody' }) }],
        'another secret': [401, { app: (app) => ({ ...app, secret: 'guess' }) }],
        'no key': [401, { change: (all) => delete all.auth_key }],
        'no timestamp': [401, { change: (all) => delete all.auth_timestamp }],
        'a timestamp that is no number': [401, { change: (all) => { all.auth_timestamp = 'now'; } }],
        'a timestamp of 11 minutes ago': [401, { change: (all) => { all.auth_timestamp = String(now() - 660); } }],
        'a timestamp of 11 minutes ahead': [401, { change: (all) => { all.auth_timestamp = String(now() + 660); } }],
        'a timestamp of 9 minutes ago': [200, { change: (all) => { all.auth_timestamp = String(now() - 540); } }],
        'a timestamp of 9 minutes ahead': [200, { change: (all) => { all.auth_timestamp = String(now() + 540); } }],
        'a negative timestamp': [401, { change: (all) => { all.auth_timestamp = '-5'; } }],
        'a timestamp of 40 digits': [401, { change: (all) => { all.auth_timestamp = '9'.repeat(40); } }],
        'no version': [401, { change: (all) => delete all.auth_version }],
        'another version': [401, { change: (all) => { all.auth_version = '2.0'; } }],
        'no body_md5': [401, { change: (all) => delete all.body_md5 }],
        'the body_md5 of something else': [401, { change: (all) => { all.body_md5 = '0'.repeat(32); } }],
        'no signature': [401, { spoil: (query) => query.replace(/&auth_signature=.*/, '') }],
        'an empty signature': [401, { spoil: (query) => query.replace(/auth_signature=.*/, 'auth_signature=') }],
        'a signature with one digit changed': [401, { spoil: (query) => query.replace(/.$/, (digit) => (digit === '0' ? '1' : '0')) }],
        'a signed parameter more': [200, { parameters: { extra: 'yes' } }],
        'a signed parameter that needs escaping': [200, { parameters: { extra: 'a b&c=d/é' } }],
        'a parameter more that is not signed': [401, { spoil: (query) => `${query}&extra=yes` }],
        'parameters in another order': [200, { spoil: (query) => query.split('&').reverse().join('&') }],
        'a parameter in capitals, signed in small letters': [200, { parameters: { Extra: 'Yes' } }],
        'a repeated parameter that was not signed': [401, { spoil: (query) => `auth_timestamp=1&${query}` }],
    };
    for (const [name, [status, { app = (same) => same, ...signing }]] of Object.entries(posts)) {
        check(`${name} is ${status}`, async (target) => {
            is(await post(target, '/events', event(), { app: app(target.app), ...signing }), status);
        });
    }
    check('a body that is not the signed one is 401', async (target) => {
        is(await post(target, '/events', event(), { sentBody: JSON.stringify(event({ name: 'forged' })) }), 401);
    });
    check('a signature for another method is 401', async (target) => {
        const path = `/apps/${target.app.id}/channels`;
        is(await request(target, 'GET', `${path}?${signedQuery(target.app, 'POST', path)}`), 401);
    });
    check('a signature for another path is 401', async (target) => {
        const path = `/apps/${target.app.id}/channels`;
        is(await request(target, 'GET', `${path}?${signedQuery(target.app, 'GET', `${path}/x`)}`), 401);
    });
    check('a request without parameters is 401', async (target) => {
        is(await request(target, 'GET', `/apps/${target.app.id}/channels`), 401);
        is(await request(target, 'POST', `/apps/${target.app.id}/events`, { body: JSON.stringify(event()) }), 401);
    });
    check('an unknown application is 401 or 404', async (target) => {
        is(await post(target, '/events', event(), { id: '999999' }), 401, 404);
    });
    check("the key of one application does not open another's paths", { needs: 'quiet' }, async (target) => {
        const quiet = target.as('quiet').app;
        is(await post(target, '/events', event(), { app: quiet, id: target.app.id }), 401, 403);
    });
    check('a GET with any signed parameters is taken', async (target) => {
        is(await get(target, '/channels', { filter_by_prefix: 'presence-', info: 'user_count', whatever: '1' }), 200);
    });
    check('a disabled application is 403', { needs: 'disabled' }, async (target) => {
        is(await post(target.as('disabled'), '/events', event()), 403);
    });
});

about('POST events', () => {
    check('answers an empty object', async (target) => {
        const answer = await post(target, '/events', event());
        is(answer, 200);
        assert.deepEqual(answer.json, {});
        assert.match(answer.headers['content-type'], /^application\/json/);
    });
    check('publishes to all of its channels', async (target) => {
        const socket = await client(target);
        const channels = [fresh(), fresh(), fresh('private')];
        for (const channel of channels) {
            await socket.subscribe(channel);
        }
        is(await post(target, '/events', { name: 'many', data: '1', channels }), 200);
        for (const channel of channels) {
            await socket.next(named('many', channel));
        }
    });
    check('leaves out the socket it names', async (target) => {
        const channel = fresh();
        const [one, two] = [await client(target), await client(target)];
        await one.subscribe(channel);
        await two.subscribe(channel);
        await publish(target, channel, 'for-others', '{}', { socket_id: one.id });
        await publish(target, channel, 'last');
        await Promise.all([one.next('last'), two.next('for-others')]);
        assert.ok(!one.left.some((message) => message.event === 'for-others'));
    });
    const bad = {
        'no JSON': 'hello', 'half of JSON': '{"name":', 'a list': [], 'a text': '"x"', 'null': 'null', 'nothing': '',
        '20,000 brackets': '['.repeat(20_000),
        'no name': event({ name: undefined }), 'an empty name': event({ name: '' }), 'a number for a name': event({ name: 5 }),
        'a name of 201 letters': event({ name: 'x'.repeat(201) }),
        'no data': event({ data: undefined }),
        'no channel': { name: 'a', data: 'b' }, 'an empty list of channels': { name: 'a', data: 'b', channels: [] },
        'a number for a channel': event({ channel: 5 }), 'a channel with a blank': event({ channel: 'a b' }),
        'an empty channel': event({ channel: '' }), 'a channel of 165 letters': event({ channel: 'x'.repeat(165) }),
        'one bad channel among good ones': { name: 'a', data: 'b', channels: ['good', 'not good'] },
        '101 channels': { name: 'a', data: 'b', channels: Array.from({ length: 101 }, (_, i) => `c${i}`) },
        'a socket_id that is none': event({ socket_id: 'me' }), 'an info that is unknown': event({ info: 'weather' }),
    };
    for (const [name, body] of Object.entries(bad)) {
        check(`${name} is 400`, async (target) => is(await post(target, '/events', body), 400));
    }
    check('100 channels are taken', async (target) => {
        is(await post(target, '/events', { name: 'a', data: 'b', channels: Array.from({ length: 100 }, () => fresh()) }), 200);
    });
    check('a name of 200 letters is taken', async (target) => is(await post(target, '/events', event({ name: 'x'.repeat(200) })), 200));
    check('data of 10 KiB arrives, one byte more is 413', async (target) => {
        const channel = fresh();
        const socket = await client(target);
        await socket.subscribe(channel);
        await publish(target, channel, 'large', 'x'.repeat(10_240));
        assert.equal((await socket.next('large')).data.length, 10_240);
        is(await post(target, '/events', event({ channel, data: 'x'.repeat(10_241) })), 413);
    });
    check('10 KiB are counted as UTF-8, and escapes do not count', async (target) => {
        is(await post(target, '/events', event({ data: '\n"\\'.repeat(3413) })), 200);
        is(await post(target, '/events', event({ data: 'é'.repeat(5121) })), 413);
    });
    check('a body of megabytes is refused', async (target) => {
        try {
            is(await post(target, '/events', event({ data: 'x'.repeat(8 << 20) })), 413);
        } catch (error) {
            // Or it is not read to its end, and the answer is lost while the rest is still being sent.
            assert.ok(['EPIPE', 'ECONNRESET'].includes(error.code), error.message);
        }
        is(await post(target, '/events', event()), 200);
    });
    check('tells counts when asked', async (target) => {
        const [presence, open] = [fresh('presence'), fresh()];
        const [one, two] = [await client(target), await client(target)];
        await one.subscribe(presence, { user_id: 'ada' });
        await two.subscribe(presence, { user_id: 'ada' });
        await one.subscribe(open);
        const asked = await post(target, '/events', { name: 'a', data: 'b', channels: [presence], info: 'user_count,subscription_count' });
        is(asked, 200);
        assert.deepEqual(asked.json, { channels: { [presence]: { user_count: 1, subscription_count: 2 } } });
        const other = await post(target, '/events', { name: 'a', data: 'b', channels: [open, presence], info: 'subscription_count' });
        assert.deepEqual(other.json, { channels: { [open]: { subscription_count: 1 }, [presence]: { subscription_count: 2 } } });
    });
    check('a body in chunks is taken', async (target) => {
        is(await post(target, '/events', event(), { headers: { 'Content-Length': null, 'Transfer-Encoding': 'chunked' } }), 200);
    });
    check('many requests on one connection are answered in turn', async (target) => {
        const agent = new http.Agent({ keepAlive: true, maxSockets: 1 });
        target.later(() => agent.destroy());
        for (let i = 0; i < 20; i += 1) {
            is(await post(target, '/events', event(), { agent }), 200);
        }
    });
    check('other types of content do no harm', async (target) => {
        is(await post(target, '/events', event(), { headers: { 'Content-Type': 'application/json; charset=utf-8' } }), 200);
        is(await post(target, '/events', event(), { headers: { 'Content-Type': null } }), 200);
    });
});

about('POST batch_events', () => {
    check('publishes every event, in order', async (target) => {
        const channel = fresh();
        const socket = await client(target);
        await socket.subscribe(channel);
        const batch = Array.from({ length: 10 }, (_, i) => ({ channel, name: `n${i}`, data: String(i) }));
        const answer = await post(target, '/batch_events', { batch });
        is(answer, 200);
        for (let i = 0; i < 10; i += 1) {
            assert.equal((await socket.next((message) => message.channel === channel)).event, `n${i}`);
        }
    });
    check('leaves out the socket that an event names', async (target) => {
        const channel = fresh();
        const socket = await client(target);
        await socket.subscribe(channel);
        is(await post(target, '/batch_events', { batch: [{ channel, name: 'a', data: '1', socket_id: socket.id }, { channel, name: 'b', data: '2' }] }), 200);
        await socket.next('b');
        assert.ok(!socket.left.some((message) => message.event === 'a'));
    });
    check('tells counts for each event that asks', async (target) => {
        const presence = fresh('presence');
        await (await client(target)).subscribe(presence, { user_id: 'ada' });
        const batch = [{ channel: presence, name: 'a', data: '1', info: 'user_count,subscription_count' }, { channel: fresh(), name: 'b', data: '2' }];
        const answer = await post(target, '/batch_events', { batch });
        is(answer, 200);
        assert.deepEqual(answer.json, { batch: [{ user_count: 1, subscription_count: 1 }, {}] });
    });
    const one = (more) => ({ channel: 'c', name: 'a', data: '1', ...more });
    for (const [name, batch] of Object.entries({
        '11 events': Array.from({ length: 11 }, () => one()), 'no list': undefined, 'an object for a list': {}, 'a text in the list': ['x'],
        'an event without a name': [one(), one({ name: undefined })], 'an event without a channel': [one({ channel: undefined })],
        'an event with a bad channel': [one({ channel: 'a b' })],
    })) {
        check(`${name} is 400`, async (target) => is(await post(target, '/batch_events', { batch }), 400));
    }
    check('data of more than 10 KiB is 413', async (target) => is(await post(target, '/batch_events', { batch: [one({ data: 'x'.repeat(10_241) })] }), 413));
    check('with one bad event publishes none of them', async (target) => {
        const channel = fresh();
        const socket = await client(target);
        await socket.subscribe(channel);
        is(await post(target, '/batch_events', { batch: [{ channel, name: 'a', data: '1' }, { channel, name: 'x'.repeat(201), data: '2' }] }), 400);
        await publish(target, channel, 'last');
        await socket.next('last');
        assert.equal(socket.seen(), 'nothing');
    });
});

about('GET channels', () => {
    check('lists what is occupied, by prefix', async (target) => {
        const prefix = fresh('listed');
        const socket = await client(target);
        await socket.subscribe(`${prefix}-a`);
        await socket.subscribe(`${prefix}-b`);
        const answer = await get(target, '/channels', { filter_by_prefix: prefix });
        is(answer, 200);
        assert.deepEqual(answer.json, { channels: { [`${prefix}-a`]: {}, [`${prefix}-b`]: {} } });
        assert.ok(`${prefix}-a` in (await get(target, '/channels')).json.channels);
        socket.send({ event: 'pusher:unsubscribe', data: { channel: `${prefix}-a` } });
        await socket.settled();
        assert.deepEqual(Object.keys((await get(target, '/channels', { filter_by_prefix: prefix })).json.channels), [`${prefix}-b`]);
    });
    check('tells members of presence channels when asked', async (target) => {
        const channel = fresh('presence');
        const [one, two] = [await client(target), await client(target)];
        await one.subscribe(channel, { user_id: 'ada' });
        await two.subscribe(channel, { user_id: 'ada' });
        const answer = await get(target, '/channels', { filter_by_prefix: 'presence-', info: 'user_count' });
        is(answer, 200);
        assert.deepEqual(answer.json.channels[channel], { user_count: 1 });
    });
    check('asked for members of all channels is 400', async (target) => is(await get(target, '/channels', { info: 'user_count' }), 400));
    check('asked for members of other channels is 400', async (target) => {
        is(await get(target, '/channels', { info: 'user_count', filter_by_prefix: 'private-' }), 400);
    });
    check('asked for nobody knows what is 400', async (target) => is(await get(target, '/channels', { info: 'weather' }), 400));
    check('with nothing occupied is an empty object', async (target) => {
        assert.deepEqual((await get(target, '/channels', { filter_by_prefix: fresh('none') })).json, { channels: {} });
    });
});

about('GET channel', () => {
    check('tells whether it is occupied', async (target) => {
        const channel = fresh();
        const empty = await get(target, `/channels/${channel}`);
        is(empty, 200);
        assert.deepEqual(empty.json, { occupied: false });
        await (await client(target)).subscribe(channel);
        assert.deepEqual((await get(target, `/channels/${channel}`)).json, { occupied: true });
    });
    check('tells counts when asked', async (target) => {
        const channel = fresh('presence');
        for (const id of ['ada', 'ada', 'bob']) {
            await (await client(target)).subscribe(channel, { user_id: id });
        }
        const answer = await get(target, `/channels/${channel}`, { info: 'user_count,subscription_count' });
        is(answer, 200);
        assert.deepEqual(answer.json, { occupied: true, user_count: 2, subscription_count: 3 });
    });
    check('asked for members of a channel that has none is 400', async (target) => {
        is(await get(target, `/channels/${fresh()}`, { info: 'user_count' }), 400);
    });
    check('takes a name with all its signs', async (target) => {
        const channel = fresh('a_-=@,.;Z');
        await (await client(target)).subscribe(channel);
        is(await get(target, `/channels/${channel}`), 200);
        const escaped = await get(target, `/channels/${encodeURIComponent(channel)}`);
        assert.deepEqual(escaped.json, { occupied: true });
    });
    check('of a name that cannot be is 400 or 404', async (target) => is(await get(target, '/channels/a%20b'), 400, 404));
});

about('GET users', () => {
    check('lists each member once', async (target) => {
        const channel = fresh('presence');
        for (const id of ['ada', 'ada', 'bob']) {
            await (await client(target)).subscribe(channel, { user_id: id });
        }
        const answer = await get(target, `/channels/${channel}/users`);
        is(answer, 200);
        assert.deepEqual(answer.json.users.sort((a, b) => (a.id < b.id ? -1 : 1)), [{ id: 'ada' }, { id: 'bob' }]);
    });
    check('of an empty presence channel are none', async (target) => {
        assert.deepEqual((await get(target, `/channels/${fresh('presence')}/users`)).json, { users: [] });
    });
    check('of another channel is 400', async (target) => is(await get(target, `/channels/${fresh()}/users`), 400));
});

about('HTTP', () => {
    check('another path is 404', async (target) => is(await get(target, '/weather'), 404));
    check('another method is 405 or 404', async (target) => {
        is(await call(target, 'DELETE', '/channels'), 404, 405);
        is(await get(target, '/events'), 404, 405);
    });
    check('a head without an end does not keep others waiting', async (target) => {
        const url = new URL(target.url);
        const slow = Array.from({ length: 50 }, () => net.connect(Number(url.port), url.hostname));
        target.later(() => slow.forEach((socket) => socket.destroy()));
        slow.forEach((socket) => socket.on('error', () => {}).write(`POST /apps/${target.app.id}/events HTTP/1.1\r\nHost: x\r\nX-A`));
        for (let i = 0; i < 5; i += 1) {
            is(await post(target, '/events', event()), 200);
        }
    });
    check('nonsense instead of HTTP is closed', async (target) => {
        const url = new URL(target.url);
        const socket = net.connect(Number(url.port), url.hostname);
        target.later(() => socket.destroy());
        const ended = new Promise((resolve) => {
            socket.on('close', resolve).on('error', () => {}).on('data', () => {});
        });
        socket.write('\x16\x03\x01\x02\x00 hello\r\n\r\n\r\n');
        await within(ended, 'the end of the connection');
        is(await post(target, '/events', event()), 200);
    });
});
