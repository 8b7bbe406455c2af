// Signing in, events for users, watching others, being thrown out. "User authentication", "Watchlist events", "Terminating user connections".

import { client } from './connection.mjs';
import { post, publish } from '../lib/api.mjs';
import { userAuth } from '../lib/sign.mjs';
import { named, within } from '../lib/socket.mjs';
import { about, assert, check, fresh } from '../lib/suite.mjs';

const events = (message) => (typeof message.data === 'string' ? JSON.parse(message.data) : message.data).events;
const watched = (name, id) => {
    const tells = (event) => event.name === name && event.user_ids.includes(id);
    const likes = (message) => message.event === 'pusher_internal:watchlist_events' && events(message).some(tells);
    likes.what = `watchlist event ${name} of ${id}`;
    return likes;
};

async function user(target, id, more = {}) {
    const socket = await client(target);
    await socket.signedIn({ id, ...more });
    return socket;
}

about('sign-in', () => {
    check('succeeds with the user data back', async (target) => {
        const socket = await client(target);
        const text = JSON.stringify({ id: fresh('user'), user_info: { name: 'Ada 🔥' } });
        const success = await socket.signedIn(text);
        const data = typeof success.data === 'string' ? JSON.parse(success.data) : success.data;
        assert.equal(data.user_data, text);
    });
    for (const [name, spoil] of Object.entries({
        'a wrong signature': (socket, target, data) => ({ auth: userAuth({ ...target.app, secret: 'guess' }, socket.id, data), user_data: data }),
        'the signature of another socket': (socket, target, data) => ({ auth: userAuth(target.app, '1.1', data), user_data: data }),
        'other data than was signed': (socket, target, data) => ({
            auth: userAuth(target.app, socket.id, data), user_data: data.replace('user', 'root'),
        }),
        'no signature': (socket, target, data) => ({ user_data: data }),
    })) {
        check(`with ${name} is closed with 4009`, async (target) => {
            const socket = await client(target);
            socket.send({ event: 'pusher:signin', data: spoil(socket, target, JSON.stringify({ id: fresh('user') })) });
            assert.equal((await within(socket.closed, 'the close')).code, 4009);
            assert.ok(!socket.left.some(({ event }) => event === 'pusher:signin_success'));
        });
    }
    const without = { 'no id': {}, 'an empty id': { id: '' }, 'a number for an id': { id: 5 }, 'a list': [], 'no JSON': 'me' };
    for (const [name, data] of Object.entries(without)) {
        check(`signed with ${name} does not succeed`, async (target) => {
            const socket = await client(target);
            socket.signIn(data);
            const answer = await Promise.race([socket.next('pusher:error'), within(socket.closed, 'an error or a close')]);
            assert.ok(answer);
            assert.ok(!socket.left.some(({ event }) => event === 'pusher:signin_success'));
        });
    }
    check('opens presence channels without channel_data', async (target) => {
        const id = fresh('user');
        const socket = await user(target, id, { user_info: { name: 'Ada' } });
        const channel = fresh('presence');
        const { data } = await socket.subscribe(channel);
        assert.deepEqual(JSON.parse(data).presence.ids, [id]);
        assert.deepEqual(JSON.parse(data).presence.hash[id], { name: 'Ada' });
    });
});

about('server to user', () => {
    check('an event reaches every connection of the user and nobody else', async (target) => {
        const id = fresh('user');
        const channel = `#server-to-user-${id}`;
        const [one, two, other] = [await user(target, id), await user(target, id), await user(target, fresh('user'))];
        // As pusher-js does it: the subscription follows the sign-in.
        one.subscribeTo(channel);
        two.subscribeTo(channel);
        await Promise.all([one.alive(), two.alive()]);
        await publish(target, channel, 'for-you', '{"n":1}');
        assert.equal((await one.next(named('for-you', channel))).data, '{"n":1}');
        await two.next(named('for-you', channel));
        await other.alive();
        assert.ok(!other.left.some(({ event }) => event === 'for-you'));
    });
    check('an event for a user who is not there is taken', async (target) => {
        await publish(target, `#server-to-user-${fresh('nobody')}`, 'for-you');
    });
    check('nobody subscribes to it without having signed in', async (target) => {
        const id = fresh('user');
        const channel = `#server-to-user-${id}`;
        const thief = await client(target);
        thief.subscribeTo(channel);
        await thief.settled();
        await publish(target, channel, 'secret');
        const open = fresh();
        await thief.subscribe(open);
        await publish(target, open, 'last');
        await thief.next('last');
        assert.ok(!thief.left.some(({ event }) => event === 'secret' || event === 'pusher_internal:subscription_succeeded'), thief.seen());
    });
    check("nobody subscribes to another user's", async (target) => {
        const id = fresh('user');
        const channel = `#server-to-user-${id}`;
        const thief = await user(target, fresh('thief'));
        thief.subscribeTo(channel);
        await thief.settled();
        await publish(target, channel, 'secret');
        const open = fresh();
        await thief.subscribe(open);
        await publish(target, open, 'last');
        await thief.next('last');
        assert.ok(!thief.left.some(({ event }) => event === 'secret'), thief.seen());
    });
});

about('terminate', () => {
    check('closes every connection of the user with 4009 and no other', async (target) => {
        const id = fresh('user');
        const [one, two, other] = [await user(target, id), await user(target, id), await user(target, fresh('user'))];
        const answer = await post(target, `/users/${id}/terminate_connections`, {});
        assert.equal(answer.status, 200);
        assert.deepEqual(answer.json, {});
        for (const socket of [one, two]) {
            assert.equal((await within(socket.closed, 'the close')).code, 4009);
        }
        await other.alive();
    });
    check('of a user who is not there is 200', async (target) => {
        assert.equal((await post(target, `/users/${fresh('nobody')}/terminate_connections`, {})).status, 200);
    });
    check('needs a signature', async (target) => {
        const id = fresh('user');
        const socket = await user(target, id);
        const wrong = await post(target, `/users/${id}/terminate_connections`, {}, { app: { ...target.app, secret: 'guess' } });
        assert.equal(wrong.status, 401);
        await socket.alive();
    });
});

about('watchlist', () => {
    check('tells who is online at the sign-in', async (target) => {
        const [here, gone, me] = [fresh('user'), fresh('user'), fresh('user')];
        await user(target, here);
        const socket = await user(target, me, { watchlist: [here, gone] });
        const told = await socket.next(watched('online', here));
        assert.ok(!events(told).some((event) => event.name === 'online' && event.user_ids.includes(gone)));
    });
    check('tells when somebody comes and goes, once for all connections', async (target) => {
        const [friend, me] = [fresh('user'), fresh('user')];
        const socket = await user(target, me, { watchlist: [friend] });
        const first = await user(target, friend);
        await socket.next(watched('online', friend));
        const second = await user(target, friend);
        await first.close();
        await new Promise((resolve) => setTimeout(resolve, 300));
        assert.ok(!socket.left.some(watched('offline', friend)), 'one connection is left');
        assert.ok(!socket.left.some(watched('online', friend)), 'told twice');
        await second.close();
        await socket.next(watched('offline', friend));
    });
    check('who is not watched is not told of', async (target) => {
        const [friend, me] = [fresh('user'), fresh('user')];
        const socket = await user(target, me, { watchlist: [friend] });
        await user(target, fresh('stranger'));
        await user(target, friend);
        await socket.next(watched('online', friend));
        assert.ok(!socket.left.some(({ event, text }) => event === 'pusher_internal:watchlist_events' && text.includes('stranger')));
    });
    check('of 100 users is taken, of 101 is answered with 4302', async (target) => {
        const many = (count) => Array.from({ length: count }, (_, i) => `watched-${i}`);
        const socket = await user(target, fresh('user'), { watchlist: many(100) });
        await socket.alive();
        assert.ok(!socket.left.some(({ event }) => event === 'pusher:error'));
        const other = await client(target);
        other.signIn({ id: fresh('user'), watchlist: many(101) });
        assert.equal((await other.next('pusher:error')).data.code, 4302);
    });
});
