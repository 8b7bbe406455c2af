// Presence channels: the members; events about a user are sent once, and never to that user.

import { client } from './connection.mjs';
import { get, publish } from '../lib/api.mjs';
import { channelAuth } from '../lib/sign.mjs';
import { named } from '../lib/socket.mjs';
import { about, assert, check, fresh } from '../lib/suite.mjs';

const parsed = ({ data }) => {
    assert.equal(typeof data, 'string', 'data of the server is a string');
    return JSON.parse(data);
};
const added = 'pusher_internal:member_added';
const removed = 'pusher_internal:member_removed';

async function member(target, channel, user) {
    const socket = await client(target);
    socket.roster = parsed(await socket.subscribe(channel, user)).presence;
    return socket;
}

about('presence channel', () => {
    check('a member gets the list with itself in it', async (target) => {
        const { roster } = await member(target, fresh('presence'), { user_id: 'ada', user_info: { name: 'Ada', n: [1] } });
        assert.deepEqual(roster, { count: 1, ids: ['ada'], hash: { ada: { name: 'Ada', n: [1] } } });
    });
    check('others are told of a member, and the member is not', async (target) => {
        const channel = fresh('presence');
        const ada = await member(target, channel, { user_id: 'ada', user_info: { name: 'Ada' } });
        const bob = await member(target, channel, { user_id: 'bob', user_info: { name: 'Bob' } });
        const event = await ada.next(named(added, channel));
        assert.deepEqual(parsed(event), { user_id: 'bob', user_info: { name: 'Bob' } });
        assert.equal(bob.roster.count, 2);
        assert.deepEqual([...bob.roster.ids].sort(), ['ada', 'bob']);
        await publish(target, channel, 'last');
        await Promise.all([ada.next('last'), bob.next('last')]);
        assert.equal(bob.seen(), 'nothing');
        assert.equal(ada.seen(), 'nothing');
    });
    check('user_info may be left out', async (target) => {
        const channel = fresh('presence');
        const ada = await member(target, channel, { user_id: 'ada' });
        assert.deepEqual(ada.roster.ids, ['ada']);
        assert.ok('ada' in ada.roster.hash);
        await member(target, channel, { user_id: 'bob' });
        assert.equal(parsed(await ada.next(added)).user_id, 'bob');
    });
    check('a user_id that is a number becomes a text', async (target) => {
        const channel = fresh('presence');
        const one = await member(target, channel, { user_id: 17, user_info: {} });
        assert.deepEqual(one.roster.ids.map(String), ['17']);
        await member(target, channel, { user_id: '18' });
        assert.equal(parsed(await one.next(added)).user_id, '18');
        const { json } = await get(target, `/channels/${channel}/users`);
        assert.deepEqual(json.users.map(({ id }) => id).sort(), ['17', '18']);
    });
    check('two tabs of one user are one member', async (target) => {
        const channel = fresh('presence');
        const ada = await member(target, channel, { user_id: 'ada' });
        const tab = await member(target, channel, { user_id: 'bob' });
        await ada.next(added);
        const other = await member(target, channel, { user_id: 'bob' });
        assert.equal(other.roster.count, 2);
        await tab.close();
        await publish(target, channel, 'still');
        await ada.next('still');
        assert.equal(ada.seen(), 'nothing', 'neither added again nor removed');
        await other.close();
        assert.deepEqual(parsed(await ada.next(named(removed, channel))), { user_id: 'bob' });
    });
    for (const [name, leave] of Object.entries({
        'unsubscribes': (socket, channel) => socket.send({ event: 'pusher:unsubscribe', data: { channel } }),
        'says goodbye': (socket) => socket.close(),
        'breaks off': (socket) => socket.destroy(),
    })) {
        check(`others are told when a member ${name}`, async (target) => {
            const channel = fresh('presence');
            const ada = await member(target, channel, { user_id: 'ada' });
            const bob = await member(target, channel, { user_id: 'bob' });
            await ada.next(added);
            leave(bob, channel);
            assert.deepEqual(parsed(await ada.next(named(removed, channel))), { user_id: 'bob' });
            const eve = await member(target, channel, { user_id: 'eve' });
            assert.deepEqual([...eve.roster.ids].sort(), ['ada', 'eve']);
        });
    }
    check('who leaves is not told of itself', async (target) => {
        const channel = fresh('presence');
        const ada = await member(target, channel, { user_id: 'ada' });
        const bob = await member(target, channel, { user_id: 'bob' });
        await ada.next(added);
        bob.send({ event: 'pusher:unsubscribe', data: { channel } });
        await ada.next(removed);
        await bob.alive();
        assert.equal(bob.seen(), 'nothing');
    });
    check('the signature covers channel_data', async (target) => {
        const channel = fresh('presence');
        const socket = await client(target);
        const auth = channelAuth(target.app, socket.id, channel, '{"user_id":"ada"}');
        socket.subscribeTo(channel, { auth, channel_data: '{"user_id":"root"}' });
        await socket.refusal(channel);
        socket.subscribeTo(channel, { auth: channelAuth(target.app, socket.id, channel), channel_data: '{"user_id":"root"}' });
        await socket.refusal(channel);
    });
    check('user ids may have any signs', async (target) => {
        const channel = fresh('presence');
        const ids = ['__proto__', 'constructor', 'a"b\\c', 'ü 🔥', '../x', 'a:b'];
        const all = [];
        for (const id of ids) {
            all.push(await member(target, channel, JSON.stringify({ user_id: id })));
        }
        assert.deepEqual([...all.at(-1).roster.ids].sort(), [...ids].sort());
    });
    check('user_info may be any JSON', async (target) => {
        const channel = fresh('presence');
        const ada = await member(target, channel, { user_id: 'ada' });
        for (const [i, info] of ['text', 5, null, [1, { a: 'é' }], { big: 1e300 }].entries()) {
            await member(target, channel, { user_id: `u${i}`, user_info: info });
            assert.deepEqual(parsed(await ada.next(added)).user_info ?? null, info);
        }
    });
    check('a hundred members are taken, one more is refused, and a second tab of one of them is not', async (target) => {
        const channel = fresh('presence');
        for (let i = 0; i < 100; i += 10) {
            await Promise.all(Array.from({ length: 10 }, (_, j) => member(target, channel, { user_id: `u${i + j}` })));
        }
        const more = await client(target);
        const data = '{"user_id":"one more"}';
        more.subscribeTo(channel, { auth: channelAuth(target.app, more.id, channel, data), channel_data: data });
        await more.refusal(channel);
        assert.equal((await member(target, channel, { user_id: 'u7' })).roster.count, 100);
    });
    for (const [name, data] of Object.entries({
        'a user_info of more than 1 KiB': { user_id: 'a', user_info: 'x'.repeat(1100) },
        'a user_id of 129 letters': { user_id: 'x'.repeat(129) },
    })) {
        check(`${name} is refused`, async (target) => {
            const channel = fresh('presence');
            const socket = await client(target);
            const text = JSON.stringify(data);
            socket.subscribeTo(channel, { auth: channelAuth(target.app, socket.id, channel, text), channel_data: text });
            await socket.refusal(channel);
            await socket.alive();
        });
    }
    check('a user_info of 1 KiB and a user_id of 128 letters are taken', async (target) => {
        const info = 'x'.repeat(1022);
        const id = 'y'.repeat(128);
        const { roster } = await member(target, fresh('presence'), { user_id: id, user_info: info });
        assert.equal(roster.hash[id], info);
    });
    check('many who come and go at once leave nobody behind', async (target) => {
        const channel = fresh('presence');
        const ada = await member(target, channel, { user_id: 'ada' });
        const others = await Promise.all(Array.from({ length: 30 }, (_, i) => member(target, channel, { user_id: `u${i}` })));
        others.forEach((socket) => socket.destroy());
        for (let i = 0; i < 30; i += 1) {
            await ada.next(removed);
        }
        const { json } = await get(target, `/channels/${channel}/users`);
        assert.deepEqual(json.users.map(({ id }) => id), ['ada']);
    });
});
