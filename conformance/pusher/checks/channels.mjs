// Public, private, encrypted and cache channels.

import { client } from './connection.mjs';
import { get, post, publish } from '../lib/api.mjs';
import { channelAuth } from '../lib/sign.mjs';
import { named } from '../lib/socket.mjs';
import { about, assert, check, fresh } from '../lib/suite.mjs';

/** Sends a last event on the same channel: when it has arrived, all earlier events have. */
async function last(target, channel, ...sockets) {
    const name = fresh('last');
    await publish(target, channel, name);
    await Promise.all(sockets.map((socket) => socket.next(named(name, channel))));
}

async function refusedWith(target, channel, auth, more = {}) {
    const socket = await client(target);
    socket.subscribeTo(channel, { ...(auth === undefined ? {} : { auth: typeof auth === 'function' ? auth(socket) : auth }), ...more });
    const refusal = await socket.refusal(channel);
    // Nothing comes through: a second channel shows that everything that was on its way has come.
    await publish(target, channel, 'secret');
    const open = fresh();
    await socket.subscribe(open);
    await last(target, open, socket);
    assert.ok(!socket.left.some(({ event }) => event === 'secret' || event === 'pusher_internal:subscription_succeeded'), socket.seen());
    return refusal;
}

about('public channel', () => {
    check('a subscription is confirmed with an empty object in a string', async (target) => {
        const channel = fresh();
        const confirmed = await (await client(target)).subscribe(channel);
        assert.equal(confirmed.channel, channel);
        assert.equal(typeof confirmed.data, 'string');
        assert.deepEqual(JSON.parse(confirmed.data), {});
    });
    check('an event arrives as it was published', async (target) => {
        const channel = fresh();
        const socket = await client(target);
        await socket.subscribe(channel);
        const texts = ['no JSON', '', ' {"spaces": 1 } ', '"quotes" \\ and \n lines', 'é 🔥 \u2028', '{"big":12345678901234567890}'];
        for (const data of ['{"a":[1,2.50,"x"]}', ...texts]) {
            await publish(target, channel, 'my event: ü', data);
            const event = await socket.next(named('my event: ü', channel));
            assert.equal(event.data, data);
            assert.deepEqual(Object.keys(event).filter((name) => name !== 'text').sort(), ['channel', 'data', 'event']);
        }
    });
    check('events of one publisher arrive in their order', async (target) => {
        const channel = fresh();
        const socket = await client(target);
        await socket.subscribe(channel);
        for (let i = 0; i < 50; i += 1) {
            await publish(target, channel, 'count', String(i));
        }
        for (let i = 0; i < 50; i += 1) {
            assert.equal((await socket.next('count')).data, String(i));
        }
    });
    check('nothing arrives after an unsubscription, and again after another subscription', async (target) => {
        const channel = fresh();
        const [socket, other] = [await client(target), await client(target)];
        await socket.subscribe(channel);
        await other.subscribe(channel);
        socket.send({ event: 'pusher:unsubscribe', data: { channel } });
        await socket.settled();
        await last(target, channel, other);
        await socket.subscribe(channel);
        await last(target, channel, socket);
        assert.equal(socket.seen(), 'nothing');
    });
    check('who subscribes twice hears everything once', async (target) => {
        const channel = fresh();
        const socket = await client(target);
        await socket.subscribe(channel);
        socket.subscribeTo(channel);
        await socket.settled();
        await publish(target, channel, 'once');
        await last(target, channel, socket);
        assert.equal(socket.left.filter(({ event }) => event === 'once').length, 1);
    });
    check('channels of two applications with one name are two channels', { needs: 'patient' }, async (target) => {
        const channel = fresh();
        const [here, there] = [await client(target), await client(target.as('patient'))];
        await here.subscribe(channel);
        await there.subscribe(channel);
        await publish(target, channel, 'here');
        await last(target.as('patient'), channel, there);
        await here.next('here');
        assert.ok(!there.left.some(({ event }) => event === 'here'));
    });
    check('all signs that a name may have', async (target) => {
        const channel = fresh('Az09_-=@,.;');
        const socket = await client(target);
        await socket.subscribe(channel);
        await last(target, channel, socket);
    });
    for (const [name, channel] of Object.entries({
        'no name': '', 'a blank': 'a b', 'a slash': 'a/b', 'a letter of another alphabet': 'ä', 'a line': 'a\nb', 'a hash': '#a',
        '165 letters': 'x'.repeat(165),
    })) {
        check(`a name with ${name} is refused`.replace('with no name', 'of no letters'), async (target) => {
            const socket = await client(target);
            socket.subscribeTo(channel);
            await socket.refusal(channel);
            await socket.alive();
        });
    }
    check('a name of 164 letters is taken', async (target) => {
        const channel = fresh().padEnd(164, 'x');
        const socket = await client(target);
        await socket.subscribe(channel);
        await last(target, channel, socket);
    });
});

about('private channel', () => {
    check('a right signature opens it', async (target) => {
        const channel = fresh('private');
        const socket = await client(target);
        await socket.subscribe(channel);
        await last(target, channel, socket);
    });
    const wrong = {
        'no signature': () => undefined,
        'a signature of something else': (target, channel) => (socket) => channelAuth(target.app, socket.id, `${channel}x`),
        'the signature of another socket': (target, channel) => () => channelAuth(target.app, '1.1', channel),
        'a signature with another secret': (target, channel) => (socket) => channelAuth({ ...target.app, secret: 'guess' }, socket.id, channel),
        'the key of nobody': (target, channel) => (socket) => channelAuth({ ...target.app, key: 'nobody' }, socket.id, channel),
        'a signature cut short': (target, channel) => (socket) => channelAuth(target.app, socket.id, channel).slice(0, -1),
        'only the key': (target) => `${target.app.key}:`,
        'only the signature': (target, channel) => (socket) => channelAuth(target.app, socket.id, channel).split(':')[1],
    };
    for (const [name, auth] of Object.entries(wrong)) {
        check(`${name} does not`, async (target) => {
            const channel = fresh('private');
            await refusedWith(target, channel, auth(target, channel));
        });
    }
    check('a refusal says AuthError and 401', async (target) => {
        const channel = fresh('private');
        const refusal = await refusedWith(target, channel, 'a:b');
        assert.equal(refusal.event, 'pusher:subscription_error');
        const data = typeof refusal.data === 'string' ? JSON.parse(refusal.data) : refusal.data;
        assert.equal(data.type, 'AuthError');
        assert.equal(data.status, 401);
        assert.equal(typeof data.error, 'string');
    });
    check('a refused client may try again', async (target) => {
        const channel = fresh('private');
        const socket = await client(target);
        socket.subscribeTo(channel, { auth: 'a:b' });
        await socket.refusal(channel);
        await socket.subscribe(channel);
    });
});

about('encrypted channel', () => {
    check('needs a signature', (target) => refusedWith(target, fresh('private-encrypted'), undefined));
    check('passes what it does not understand', async (target) => {
        const channel = fresh('private-encrypted');
        const socket = await client(target);
        await socket.subscribe(channel);
        const data = JSON.stringify({ nonce: 'bm9uY2U=', ciphertext: 'Y2lwaGVy' });
        await publish(target, channel, 'sealed', data);
        assert.equal((await socket.next('sealed')).data, data);
    });
    check('an event for it and another channel is refused, as Pusher does', async (target) => {
        // Server library reference: "Channels can only be published to one at a time when encrypted"; the libraries refuse it themselves.
        const answer = await post(target, '/events', { name: 'a', channels: [fresh('private-encrypted'), fresh()], data: '{}' });
        assert.ok([200, 400].includes(answer.status), `status ${answer.status}`);
    });
});

const cached = (prefix) => {
    const user = prefix.startsWith('presence-') ? () => ({ user_id: fresh('user') }) : () => undefined;
    about(`${prefix}channel`, () => {
        check('without an event says pusher:cache_miss', async (target) => {
            const channel = fresh(prefix.slice(0, -1));
            const socket = await client(target);
            await socket.subscribe(channel, user());
            const miss = await socket.next(named('pusher:cache_miss', channel));
            assert.equal(miss.channel, channel);
        });
        check('gives the last event to who comes later, behind the confirmation', async (target) => {
            const channel = fresh(prefix.slice(0, -1));
            const first = await client(target);
            await first.subscribe(channel, user());
            await publish(target, channel, 'old', '{"n":1}');
            await publish(target, channel, 'new', '{"n":2}');
            await first.next('new');
            const second = await client(target);
            await second.subscribe(channel, user());
            const event = await second.next(named('new', channel));
            assert.equal(event.data, '{"n":2}');
            await second.alive();
            const others = second.left.filter(({ event: name }) => ['old', 'new', 'pusher:cache_miss'].includes(name));
            assert.deepEqual(others, [], 'the last event once, and no miss');
        });
        check('keeps an event that was published before anybody came', async (target) => {
            const channel = fresh(prefix.slice(0, -1));
            await publish(target, channel, 'early', '{"n":0}');
            const socket = await client(target);
            await socket.subscribe(channel, user());
            assert.equal((await socket.next(named('early', channel))).data, '{"n":0}');
        });
        check('keeps it when everybody has left', async (target) => {
            const channel = fresh(prefix.slice(0, -1));
            const first = await client(target);
            await first.subscribe(channel, user());
            await publish(target, channel, 'kept');
            await first.next('kept');
            await first.close();
            const second = await client(target);
            await second.subscribe(channel, user());
            await second.next(named('kept', channel));
        });
        if (!prefix.startsWith('cache-')) {
            check('needs a signature', (target) => refusedWith(target, fresh(prefix.slice(0, -1)), undefined));
        }
    });
};
['cache-', 'private-cache-', 'presence-cache-', 'private-encrypted-cache-'].forEach(cached);

about('cache channel', () => {
    check('keeps an event whose sender was left out', async (target) => {
        const channel = fresh('cache');
        const sender = await client(target);
        await sender.subscribe(channel);
        await publish(target, channel, 'without', '{}', { socket_id: sender.id });
        const later = await client(target);
        await later.subscribe(channel);
        await later.next(named('without', channel));
        await sender.alive();
        assert.ok(!sender.left.some(({ event }) => event === 'without'));
    });
    check('does not keep client events', async (target) => {
        const channel = fresh('private-cache');
        const [sender, reader] = [await client(target), await client(target)];
        await sender.subscribe(channel);
        await reader.subscribe(channel);
        sender.send({ event: 'client-whisper', channel, data: {} });
        await reader.next('client-whisper');
        const later = await client(target);
        await later.subscribe(channel);
        await later.next('pusher:cache_miss');
    });
    check('tells its event through the HTTP API', async (target) => {
        const channel = fresh('cache');
        await publish(target, channel, 'kept', '{"n":1}');
        const socket = await client(target);
        await socket.subscribe(channel);
        const { status, json } = await get(target, `/channels/${channel}`, { info: 'cache' });
        assert.equal(status, 200);
        assert.equal(json.cache.data, '{"n":1}');
        assert.ok(json.cache.ttl > 0);
    });
});

about('subscription count', () => {
    check('is told to subscribers when it changes', { needs: 'counting' }, async (target) => {
        const counting = target.as('counting');
        const channel = fresh();
        const first = await client(counting);
        await first.subscribe(channel);
        const count = async (socket) => {
            const event = await socket.next(named('pusher_internal:subscription_count', channel));
            return (typeof event.data === 'string' ? JSON.parse(event.data) : event.data).subscription_count;
        };
        assert.equal(await count(first), 1);
        const second = await client(counting);
        await second.subscribe(channel);
        assert.equal(await count(first), 2);
        assert.equal(await count(second), 2);
        await second.close();
        assert.equal(await count(first), 1);
    });
    check('is not told where it is switched off', async (target) => {
        const channel = fresh();
        const [first, second] = [await client(target), await client(target)];
        await first.subscribe(channel);
        await second.subscribe(channel);
        await last(target, channel, first);
        assert.equal(first.seen(), 'nothing');
    });
});
