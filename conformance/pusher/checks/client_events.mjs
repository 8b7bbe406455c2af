// Client events: who may send them, who gets them, how many. "Triggering client events" of the WebSocket protocol.

import { client } from './connection.mjs';
import { publish } from '../lib/api.mjs';
import { named } from '../lib/socket.mjs';
import { about, assert, check, fresh } from '../lib/suite.mjs';

async function pair(target, channel, user = () => undefined) {
    const [sender, reader] = [await client(target), await client(target)];
    await sender.subscribe(channel, user('sender'));
    await reader.subscribe(channel, user('reader'));
    return [sender, reader];
}

const value = ({ data }) => {
    try { return JSON.parse(data); } catch { return data; }
};

/** The sender gets 4301, no client gets the event, and the connection stays open. */
async function refusedEvent(target, message, sender, reader, channel) {
    sender.send(message);
    const error = await sender.next('pusher:error');
    assert.equal(error.data.code, 4301);
    await sender.alive();
    await publish(target, channel, 'last');
    await reader.next(named('last', channel));
    assert.ok(!reader.left.some(({ event }) => event === message.event), reader.seen());
}

about('client event', () => {
    check('on a private channel reaches others and not the sender', async (target) => {
        const channel = fresh('private');
        const [sender, reader] = await pair(target, channel);
        for (const data of [{ a: 1 }, 'text', [1, 'é 🔥'], { nested: { b: null } }, 5, true]) {
            sender.send({ event: 'client-whisper', channel, data });
            const event = await reader.next(named('client-whisper', channel));
            assert.deepEqual(typeof event.data === 'string' && typeof data !== 'string' ? value(event) : event.data, data);
            assert.ok(!('user_id' in event));
        }
        await publish(target, channel, 'last');
        await sender.next('last');
        assert.equal(sender.seen(), 'nothing');
    });
    check('on a presence channel says whose it is', async (target) => {
        const channel = fresh('presence');
        const [sender, reader] = await pair(target, channel, (name) => ({ user_id: name }));
        sender.send({ event: 'client-whisper', channel, data: {}, user_id: 'somebody else' });
        assert.equal((await reader.next('client-whisper')).user_id, 'sender');
    });
    check('with no data at all does no harm', async (target) => {
        const channel = fresh('private');
        const [sender, reader] = await pair(target, channel);
        sender.send({ event: 'client-bare', channel });
        await sender.settled();
        await publish(target, channel, 'last');
        await reader.next('last');
    });
    check('on a public channel is refused with 4301', async (target) => {
        const channel = fresh();
        const [sender, reader] = await pair(target, channel);
        await refusedEvent(target, { event: 'client-whisper', channel, data: {} }, sender, reader, channel);
    });
    check('on an encrypted channel is refused with 4301', async (target) => {
        const channel = fresh('private-encrypted');
        const [sender, reader] = await pair(target, channel);
        await refusedEvent(target, { event: 'client-whisper', channel, data: {} }, sender, reader, channel);
    });
    check('from who is not subscribed is refused with 4301', async (target) => {
        const channel = fresh('private');
        const reader = await client(target);
        await reader.subscribe(channel);
        await refusedEvent(target, { event: 'client-whisper', channel, data: {} }, await client(target), reader, channel);
    });
    check('from who is not subscribed any more is refused with 4301', async (target) => {
        const channel = fresh('private');
        const [sender, reader] = await pair(target, channel);
        sender.send({ event: 'pusher:unsubscribe', data: { channel } });
        await refusedEvent(target, { event: 'client-whisper', channel, data: {} }, sender, reader, channel);
    });
    check('where they are switched off is refused with 4301', { needs: 'quiet' }, async (target) => {
        const channel = fresh('private');
        const quiet = target.as('quiet');
        const [sender, reader] = await pair(quiet, channel);
        await refusedEvent(quiet, { event: 'client-whisper', channel, data: {} }, sender, reader, channel);
    });
    check('of more than 10 KiB is refused with 4301', async (target) => {
        const channel = fresh('private');
        const [sender, reader] = await pair(target, channel);
        await refusedEvent(target, { event: 'client-large', channel, data: 'x'.repeat(10_241) }, sender, reader, channel);
    });
    check('of 10,000 bytes arrives', async (target) => {
        const channel = fresh('private');
        const [sender, reader] = await pair(target, channel);
        const data = { text: 'x'.repeat(9_980) };
        sender.send({ event: 'client-large', channel, data });
        assert.deepEqual(value(await reader.next('client-large')).text ?? (await reader.left[0]).data, data.text);
    });
    check('with a name of 201 letters is refused with 4301', async (target) => {
        const channel = fresh('private');
        const [sender, reader] = await pair(target, channel);
        await refusedEvent(target, { event: `client-${'x'.repeat(194)}`, channel, data: {} }, sender, reader, channel);
    });
    check('the eleventh within a second is refused with 4301, and a second later there is room', async (target) => {
        const channel = fresh('private');
        const [sender, reader] = await pair(target, channel);
        for (let i = 0; i < 30; i += 1) {
            sender.send({ event: 'client-burst', channel, data: { i } });
        }
        const error = await sender.next('pusher:error');
        assert.equal(error.data.code, 4301);
        await sender.settled();
        await publish(target, channel, 'last');
        await reader.next('last');
        const got = reader.left.filter(({ event }) => event === 'client-burst').map((event) => value(event).i);
        assert.deepEqual(got.slice(0, 10), [0, 1, 2, 3, 4, 5, 6, 7, 8, 9]);
        assert.ok(got.length < 30, 'there is no limit');
        await new Promise((resolve) => setTimeout(resolve, 1500));
        sender.send({ event: 'client-later', channel, data: {} });
        await reader.next('client-later');
    });
    check('the limit is that of one connection', async (target) => {
        const channel = fresh('private');
        const [sender, reader] = await pair(target, channel);
        const other = await client(target);
        await other.subscribe(channel);
        for (let i = 0; i < 30; i += 1) {
            sender.send({ event: 'client-burst', channel, data: {} });
        }
        await sender.next('pusher:error');
        other.send({ event: 'client-mine', channel, data: {} });
        await reader.next('client-mine');
    });
});
