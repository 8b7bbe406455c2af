// The published libraries: pusher-js and Laravel Echo as clients, `pusher` as publisher. The checks are about their behaviour with
// a server.

import http from 'node:http';
import { createRequire } from 'node:module';
import { PATIENCE, within } from '../lib/socket.mjs';
import { about, assert, check, fresh } from '../lib/suite.mjs';

const require = createRequire(import.meta.url);
const Pusher = require('pusher');
const PusherClient = require('pusher-js');
// What Node gets of pusher-js is the build that decrypts.
const EncryptingClient = PusherClient;
const { default: Echo } = await import('laravel-echo');

const masterKey = Buffer.alloc(32, 7).toString('base64');

/** The server library, as in an application. */
function server(target, secret = target.app.secret) {
    const url = new URL(target.url);
    return new Pusher({
        appId: target.app.id, key: target.app.key, secret, host: url.hostname, port: url.port, useTLS: false,
        encryptionMasterKeyBase64: masterKey,
    });
}

/** A browser's options; `user` is who the application takes it for. */
function options(target, user, more = {}) {
    const url = new URL(target.url);
    const behind = server(target);
    return {
        wsHost: url.hostname, wsPort: Number(url.port), forceTLS: false, enabledTransports: ['ws'], disableStats: true, cluster: '',
        channelAuthorization: {
            customHandler: ({ socketId, channelName }, answer) => {
                const data = channelName.startsWith('presence-') ? { user_id: user?.id, user_info: user?.user_info } : undefined;
                answer(null, behind.authorizeChannel(socketId, channelName, data));
            },
        },
        userAuthentication: { customHandler: ({ socketId }, answer) => answer(null, behind.authenticateUser(socketId, user)) },
        ...more,
    };
}

function browser(target, user, more, Client = PusherClient) {
    const client = new Client(target.app.key, options(target, user, more));
    target.later(() => client.disconnect());
    return client;
}

/** The first event of that name; a refusal of a subscription is an error at once. */
const heard = (from, name) => within(new Promise((resolve, reject) => {
    from.bind(name, resolve);
    if (name !== 'pusher:subscription_error') {
        from.bind('pusher:subscription_error', (error) => reject(new Error(JSON.stringify(error))));
    }
}), name);

const subscribed = async (client, name) => {
    const channel = client.subscribe(name);
    channel.found = await heard(channel, 'pusher:subscription_succeeded');
    return channel;
};

async function state(client, wanted) {
    if (client.connection.state !== wanted) {
        await within(new Promise((resolve) => client.connection.bind(wanted, resolve)), `the state ${wanted}, not ${client.connection.state}`);
    }
}

about('pusher-js', () => {
    check('connects', async (target) => {
        const client = browser(target);
        await state(client, 'connected');
        assert.match(client.connection.socket_id, /^\d+\.\d+$/);
    });
    check('stays connected over its own pings', async (target) => {
        const client = browser(target, undefined, { activityTimeout: 500, pongTimeout: 2000 });
        await state(client, 'connected');
        const states = [];
        client.connection.bind('state_change', ({ current }) => states.push(current));
        await new Promise((resolve) => setTimeout(resolve, 3000));
        assert.deepEqual(states, []);
    });
    check('hears an event of a public channel, and not behind its own back', async (target) => {
        const name = fresh();
        const [one, two] = [browser(target), browser(target)];
        const [here, there] = [await subscribed(one, name), await subscribed(two, name)];
        const own = [];
        here.bind('news', (data) => own.push(data));
        const event = heard(there, 'news');
        const last = heard(here, 'last');
        await server(target).trigger(name, 'news', { text: 'é 🔥', n: 1 }, { socket_id: one.connection.socket_id });
        await server(target).trigger(name, 'last', {});
        assert.deepEqual(await event, { text: 'é 🔥', n: 1 });
        await last;
        assert.deepEqual(own, []);
    });
    check('opens private channels and whispers there', async (target) => {
        const name = fresh('private');
        const [here, there] = [await subscribed(browser(target), name), await subscribed(browser(target), name)];
        const whisper = heard(there, 'client-typing');
        here.trigger('client-typing', { who: 'Ada' });
        assert.deepEqual(await whisper, { who: 'Ada' });
    });
    check('is told why a channel stays closed', async (target) => {
        const client = browser(target, undefined, {
            channelAuthorization: { customHandler: (_, answer) => answer(null, { auth: `${target.app.key}:wrong` }) },
        });
        const name = fresh('private');
        const channel = client.subscribe(name);
        const told = await Promise.race([heard(channel, 'pusher:subscription_error'), heard(client.connection, 'error')]);
        assert.ok(told);
    });
    check('knows the members of a presence channel', async (target) => {
        const name = fresh('presence');
        const ada = await subscribed(browser(target, { id: 'ada', user_info: { name: 'Ada' } }), name);
        assert.equal(ada.members.count, 1);
        assert.deepEqual(ada.members.me, { id: 'ada', info: { name: 'Ada' } });
        const added = heard(ada, 'pusher:member_added');
        const bobs = browser(target, { id: 'bob', user_info: { name: 'Bob' } });
        const bob = await subscribed(bobs, name);
        assert.deepEqual(await added, { id: 'bob', info: { name: 'Bob' } });
        assert.equal(bob.members.count, 2);
        assert.deepEqual(bob.members.get('ada'), { id: 'ada', info: { name: 'Ada' } });
        const whisper = within(new Promise((resolve) => ada.bind('client-hello', (data, about) => resolve([data, about]))), 'a whisper');
        bob.trigger('client-hello', { a: 1 });
        assert.deepEqual(await whisper, [{ a: 1 }, { user_id: 'bob' }]);
        const removed = heard(ada, 'pusher:member_removed');
        bobs.disconnect();
        assert.deepEqual(await removed, { id: 'bob', info: { name: 'Bob' } });
        assert.equal(ada.members.count, 1);
    });
    check('decrypts what the server library has encrypted', async (target) => {
        const name = fresh('private-encrypted');
        const channel = await subscribed(browser(target, undefined, undefined, EncryptingClient), name);
        const event = heard(channel, 'secret');
        await server(target).trigger(name, 'secret', { text: 'sealed' });
        assert.deepEqual(await event, { text: 'sealed' });
    });
    check('hears of a cache miss, and gets the last event', async (target) => {
        const name = fresh('cache');
        await heard(browser(target).subscribe(name), 'pusher:cache_miss');
        await server(target).trigger(name, 'price', { n: 1 });
        assert.deepEqual(await heard(browser(target).subscribe(name), 'price'), { n: 1 });
    });
    check('decrypts the last event of an encrypted cache channel', async (target) => {
        const name = fresh('private-encrypted-cache');
        await server(target).trigger(name, 'price', { n: 2 });
        assert.deepEqual(await heard(browser(target, undefined, undefined, EncryptingClient).subscribe(name), 'price'), { n: 2 });
    });
    check('signs in, and hears what is for its user', async (target) => {
        const user = { id: fresh('user'), user_info: { name: 'Ada' } };
        const client = browser(target, user);
        await state(client, 'connected');
        const success = heard(client.connection, 'message');
        client.signin();
        await success;
        await within(client.user.signinDonePromise, 'the sign-in');
        assert.equal(client.user.user_data?.id, user.id);
        const channel = client.user.serverToUserChannel;
        if (!channel.subscribed) {
            await heard(channel, 'pusher:subscription_succeeded');
        }
        const event = heard(client.user, 'for-you');
        await server(target).sendToUser(user.id, 'for-you', { n: 1 });
        assert.deepEqual(await event, { n: 1 });
    });
    check('watches others come and go', async (target) => {
        const friend = { id: fresh('user') };
        const client = browser(target, { id: fresh('user'), watchlist: [friend.id] });
        const online = heard(client.user.watchlist, 'online');
        const offline = heard(client.user.watchlist, 'offline');
        client.signin();
        await state(client, 'connected');
        await within(client.user.signinDonePromise, 'the sign-in');
        const other = browser(target, friend);
        other.signin();
        assert.deepEqual((await online).user_ids, [friend.id]);
        other.disconnect();
        assert.deepEqual((await offline).user_ids, [friend.id]);
    });
    check('does not come back when its user is thrown out', async (target) => {
        const user = { id: fresh('user') };
        const client = browser(target, user);
        client.signin();
        await state(client, 'connected');
        await within(client.user.signinDonePromise, 'the sign-in');
        await server(target).terminateUserConnections(user.id);
        await state(client, 'disconnected');
        await new Promise((resolve) => setTimeout(resolve, 1000));
        assert.equal(client.connection.state, 'disconnected');
    });
    check('is told the number of subscriptions', { needs: 'counting' }, async (target) => {
        const counting = target.as('counting');
        const name = fresh();
        const channel = browser(counting).subscribe(name);
        await heard(channel, 'pusher:subscription_succeeded');
        const two = within(new Promise((resolve) => {
            channel.bind('pusher:subscription_count', ({ subscription_count: count }) => count === 2 && resolve());
        }), 'a count of two');
        browser(counting).subscribe(name);
        await two;
        assert.equal(channel.subscriptionCount, 2);
    });
    check('gives up on an application that is not there', async (target) => {
        const client = browser({ ...target, app: { ...target.app, key: 'nobody' } });
        const error = await heard(client.connection, 'error');
        assert.equal(error.data?.code ?? error.error?.data?.code, 4001);
        await state(client, 'disconnected');
    });
    check('leaves and comes back', async (target) => {
        const name = fresh();
        const client = browser(target);
        await subscribed(client, name);
        client.unsubscribe(name);
        const channel = await subscribed(client, name);
        const event = heard(channel, 'news');
        await server(target).trigger(name, 'news', 1);
        assert.equal(await event, 1);
    });
});

/** A Laravel application's part for Echo: the routes of `Broadcast::routes()` in a few lines. */
async function laravel(target, user) {
    const behind = server(target);
    const routes = http.createServer((request, answer) => {
        let body = '';
        request.on('data', (part) => { body += part; });
        request.on('end', () => {
            const fields = new URLSearchParams(body);
            const [socket, channel] = [fields.get('socket_id'), fields.get('channel_name')];
            const data = channel?.startsWith('presence-') ? { user_id: user.id, user_info: user } : undefined;
            answer.setHeader('Content-Type', 'application/json');
            answer.end(JSON.stringify(request.url === '/broadcasting/auth' ? behind.authorizeChannel(socket, channel, data) : {}));
        });
    });
    await new Promise((resolve) => { routes.listen(0, '127.0.0.1', resolve); });
    target.later(() => routes.closeAllConnections?.());
    target.later(() => routes.close());
    return `http://127.0.0.1:${routes.address().port}/broadcasting/auth`;
}

async function echo(target, user = { id: 1, name: 'Ada' }, broadcaster = 'reverb') {
    const url = new URL(target.url);
    const authEndpoint = await laravel(target, user);
    const made = new Echo({
        broadcaster, key: target.app.key, wsHost: url.hostname, wsPort: Number(url.port), wssPort: Number(url.port), forceTLS: false,
        enabledTransports: ['ws'], disableStats: true, cluster: '', authEndpoint, Pusher: EncryptingClient,
    });
    target.later(() => made.disconnect());
    return made;
}

const said = (listen, what) => within(new Promise(listen), what, PATIENCE);

about('Laravel Echo', () => {
    for (const broadcaster of ['reverb', 'pusher']) {
        check(`as ${broadcaster} listens on a public channel`, async (target) => {
            const name = fresh('orders');
            const client = await echo(target, undefined, broadcaster);
            const channel = client.channel(name);
            await said((resolve, reject) => channel.subscribed(resolve).error(reject), 'a subscription');
            const plain = said((resolve) => channel.listen('.shipped', resolve), '.shipped');
            const spaced = said((resolve) => channel.listen('OrderShipped', resolve), 'OrderShipped');
            await server(target).trigger(name, 'shipped', { id: 1 });
            await server(target).trigger(name, 'App\\Events\\OrderShipped', { id: 2 });
            assert.deepEqual(await plain, { id: 1 });
            assert.deepEqual(await spaced, { id: 2 });
            assert.match(client.socketId(), /^\d+\.\d+$/);
        });
    }
    check('listens on a private channel, notified as Laravel does', async (target) => {
        const name = fresh('user');
        const channel = (await echo(target)).private(name);
        await said((resolve, reject) => channel.subscribed(resolve).error(reject), 'a subscription');
        const told = said((resolve) => channel.notification(resolve), 'a notification');
        await server(target).trigger(`private-${name}`, 'Illuminate\\Notifications\\Events\\BroadcastNotificationCreated', { type: 'Paid' });
        assert.equal((await told).type, 'Paid');
    });
    check('whispers on a private channel', async (target) => {
        const name = fresh('room');
        const [here, there] = [(await echo(target)).private(name), (await echo(target)).private(name)];
        await Promise.all([here, there].map((channel) => said((resolve, reject) => channel.subscribed(resolve).error(reject), 'a subscription')));
        const whisper = said((resolve) => there.listenForWhisper('typing', resolve), 'a whisper');
        here.whisper('typing', { name: 'Ada' });
        assert.deepEqual(await whisper, { name: 'Ada' });
    });
    check('joins a presence channel: here, joining, leaving', async (target) => {
        const name = fresh('room');
        const [ada, bob] = [await echo(target, { id: 1, name: 'Ada' }), await echo(target, { id: 2, name: 'Bob' })];
        const mine = ada.join(name);
        assert.deepEqual(await said((resolve) => mine.here(resolve), 'here'), [{ id: 1, name: 'Ada' }]);
        const joining = said((resolve) => mine.joining(resolve), 'joining');
        const leaving = said((resolve) => mine.leaving(resolve), 'leaving');
        const theirs = bob.join(name);
        const here = await said((resolve) => theirs.here(resolve), 'here');
        assert.deepEqual(here.map((user) => user.name).sort(), ['Ada', 'Bob']);
        assert.deepEqual(await joining, { id: 2, name: 'Bob' });
        bob.leave(name);
        assert.deepEqual(await leaving, { id: 2, name: 'Bob' });
    });
    check('listens on an encrypted private channel', async (target) => {
        const name = fresh('vault');
        const channel = (await echo(target)).encryptedPrivate(name);
        await said((resolve, reject) => channel.subscribed(resolve).error(reject), 'a subscription');
        const event = said((resolve) => channel.listen('.opened', resolve), '.opened');
        await server(target).trigger(`private-encrypted-${name}`, 'opened', { n: 1 });
        assert.deepEqual(await event, { n: 1 });
    });
});

about('pusher (npm)', () => {
    const json = async (answer) => (await answer).json();
    check('triggers on many channels and is told their counts', async (target) => {
        const name = fresh('presence');
        await subscribed(browser(target, { id: 'ada' }), name);
        const answer = await json(server(target).trigger([name], 'news', {}, { info: 'user_count,subscription_count' }));
        assert.deepEqual(answer, { channels: { [name]: { user_count: 1, subscription_count: 1 } } });
    });
    check('triggers a batch', async (target) => {
        const name = fresh();
        const channel = await subscribed(browser(target), name);
        const both = Promise.all([heard(channel, 'a'), heard(channel, 'b')]);
        await server(target).triggerBatch([{ channel: name, name: 'a', data: { n: 1 } }, { channel: name, name: 'b', data: { n: 2 } }]);
        assert.deepEqual(await both, [{ n: 1 }, { n: 2 }]);
    });
    check('asks for channels, a channel and its users', async (target) => {
        const name = fresh('presence');
        await subscribed(browser(target, { id: 'ada' }), name);
        const behind = server(target);
        const all = await json(behind.get({ path: '/channels', params: { filter_by_prefix: 'presence-', info: 'user_count' } }));
        assert.deepEqual(all.channels[name], { user_count: 1 });
        assert.deepEqual(await json(behind.get({ path: `/channels/${name}`, params: { info: 'user_count,subscription_count' } })), {
            occupied: true, user_count: 1, subscription_count: 1,
        });
        assert.deepEqual(await json(behind.get({ path: `/channels/${name}/users` })), { users: [{ id: 'ada' }] });
    });
    check('is told what was wrong', async (target) => {
        const wrong = server(target, 'guess');
        await assert.rejects(wrong.trigger('a', 'b', {}), (error) => error.status === 401 && error.body.length > 0);
    });
    check('finds webhooks valid', { needs: 'webhooks' }, async (target) => {
        const name = fresh();
        await subscribed(browser(target), name);
        const { request } = await target.webhooks.event('channel_occupied', name);
        const webhook = server(target).webhook({ headers: request.headers, rawBody: request.body });
        assert.ok(webhook.isValid());
        assert.ok(webhook.getEvents().some((event) => event.channel === name));
        assert.ok(Math.abs(webhook.getTime() - Date.now()) < 60_000);
    });
});
