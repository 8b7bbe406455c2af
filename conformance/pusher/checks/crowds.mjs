// Many clients, and clients that read too slowly. No other check runs at the same time.

import { client } from './connection.mjs';
import { get, post, publish } from '../lib/api.mjs';
import { within } from '../lib/socket.mjs';
import { about, assert, check, fresh } from '../lib/suite.mjs';

const alone = true;

about('crowd', () => {
    check('500 clients that come at once are all let in', { alone }, async (target) => {
        const all = await Promise.all(Array.from({ length: 500 }, () => client(target)));
        assert.equal(new Set(all.map(({ id }) => id)).size, 500);
    });
    check('a client that never reads costs others nothing, and is closed in the end', { alone }, async (target) => {
        const channel = fresh();
        const [slow, reader] = [await client(target), await client(target)];
        await slow.subscribe(channel);
        await reader.subscribe(channel);
        slow.pause();
        // More than the kernel keeps for both ends of a connection, and than may wait for one socket.
        const data = 'x'.repeat(10_000);
        const channels = { batch: Array.from({ length: 10 }, () => ({ channel, name: 'large', data })) };
        for (let i = 0; i < 200; i += 1) {
            assert.equal((await post(target, '/batch_events', channels)).status, 200);
            for (let j = 0; j < 10; j += 1) {
                await reader.next('large');
            }
        }
        slow.resume();
        const { code } = await within(slow.closed, 'the end of a client that does not read');
        assert.ok(code === null || code === 4100, `closed with ${code}`);
        assert.ok(slow.left.filter(({ event }) => event === 'large').length < 2000, 'everything was kept for it');
        await reader.alive();
    });
    check('300 subscribers that vanish while it is published to them leave an empty channel', { alone }, async (target) => {
        const channel = fresh();
        const [reader, ...others] = await Promise.all(Array.from({ length: 301 }, () => client(target)));
        await Promise.all([reader, ...others].map((socket) => socket.subscribe(channel)));
        for (let i = 0; i < 30; i += 1) {
            others.slice(i * 10, i * 10 + 10).forEach((socket) => socket.destroy());
            await publish(target, channel, 'count', String(i));
        }
        for (let i = 0; i < 30; i += 1) {
            assert.equal((await reader.next('count')).data, String(i));
        }
        const end = Date.now() + 10_000;
        for (let left; left !== 1;) {
            assert.ok(Date.now() < end, `${left} subscriptions are left`);
            left = (await get(target, `/channels/${channel}`, { info: 'subscription_count' })).json.subscription_count;
        }
    });
});
