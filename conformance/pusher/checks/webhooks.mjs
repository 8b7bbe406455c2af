// Webhooks: signed, sent once, and repeated until they are accepted. See "Webhooks" in the Pusher
// documents.

import { client } from './connection.mjs';
import { publish } from '../lib/api.mjs';
import { hmac } from '../lib/sign.mjs';
import { about, assert, check, fresh } from '../lib/suite.mjs';

const needs = 'webhooks';

about('webhook', () => {
    check('is a signed POST of JSON with its time', { needs }, async (target) => {
        const channel = fresh();
        const before = Date.now();
        await (await client(target)).subscribe(channel);
        const { request } = await target.webhooks.event('channel_occupied', channel);
        assert.equal(request.method, 'POST');
        assert.match(request.headers['content-type'], /^application\/json/);
        assert.equal(request.headers['x-pusher-key'], target.app.key);
        assert.equal(request.headers['x-pusher-signature'], hmac(target.app.secret, request.body));
        assert.ok(Number.isInteger(request.json.time_ms) && Math.abs(request.json.time_ms - before) < 60_000, `time_ms is ${request.json.time_ms}`);
    });
    check('channel_occupied comes for the first subscriber only', { needs }, async (target) => {
        const channel = fresh();
        await (await client(target)).subscribe(channel);
        await target.webhooks.event('channel_occupied', channel);
        await (await client(target)).subscribe(channel);
        await new Promise((resolve) => setTimeout(resolve, 1500));
        assert.equal(target.webhooks.events(channel).filter(({ name }) => name === 'channel_occupied').length, 1);
    });
    check('channel_vacated comes when the last has left', { needs }, async (target) => {
        const channel = fresh();
        const [one, two] = [await client(target), await client(target)];
        await one.subscribe(channel);
        await two.subscribe(channel);
        await one.close();
        await two.close();
        await target.webhooks.event('channel_vacated', channel);
    });
    check('channel_vacated does not come for a page that is loaded again', { needs }, async (target) => {
        const channel = fresh();
        const page = await client(target);
        await page.subscribe(channel);
        await target.webhooks.event('channel_occupied', channel);
        await page.close();
        await (await client(target)).subscribe(channel);
        await new Promise((resolve) => setTimeout(resolve, 5000));
        const told = target.webhooks.events(channel).filter(({ name }) => ['channel_occupied', 'channel_vacated'].includes(name));
        assert.deepEqual(told.map(({ name }) => name), ['channel_occupied']);
    });
    check('member_added and member_removed come once for each user', { needs }, async (target) => {
        const channel = fresh('presence');
        const [tab, other] = [await client(target), await client(target)];
        await tab.subscribe(channel, { user_id: 'ada' });
        await other.subscribe(channel, { user_id: 'ada' });
        const added = await target.webhooks.event('member_added', channel);
        assert.equal(added.user_id, 'ada');
        await tab.close();
        await other.close();
        assert.equal((await target.webhooks.event('member_removed', channel)).user_id, 'ada');
        assert.equal(target.webhooks.events(channel).filter(({ name }) => name === 'member_added').length, 1);
    });
    check('client_event has the event, its data and its sender', { needs }, async (target) => {
        const channel = fresh('presence');
        const socket = await client(target);
        await socket.subscribe(channel, { user_id: 'ada' });
        socket.send({ event: 'client-whisper', channel, data: { a: 1 } });
        const told = await target.webhooks.event('client_event', channel);
        assert.equal(told.event, 'client-whisper');
        assert.deepEqual(typeof told.data === 'string' ? JSON.parse(told.data) : told.data, { a: 1 });
        assert.equal(told.socket_id, socket.id);
        assert.equal(told.user_id, 'ada');
    });
    check('cache_miss comes for a cache channel without an event', { needs }, async (target) => {
        const channel = fresh('cache');
        await (await client(target)).subscribe(channel);
        await target.webhooks.event('cache_miss', channel);
        const full = fresh('cache');
        await publish(target, full, 'kept');
        await (await client(target)).subscribe(full);
        await target.webhooks.event('channel_occupied', full);
        assert.ok(!target.webhooks.events(full).some(({ name }) => name === 'cache_miss'));
    });
    check('subscription_count comes when it changes', { needs }, async (target) => {
        const channel = fresh();
        const [one, two] = [await client(target), await client(target)];
        await one.subscribe(channel);
        await two.subscribe(channel);
        await target.webhooks.event('subscription_count', channel, ({ subscription_count: count }) => count === 2);
    });
    check('that was not taken comes again with the same body', { needs }, async (target) => {
        const channel = fresh('answer-500-once');
        await (await client(target)).subscribe(channel);
        const { request } = await target.webhooks.event('channel_occupied', channel);
        const all = target.webhooks.requests.filter(({ body }) => body === request.body);
        assert.deepEqual(all.map(({ status }) => status), [500, 200]);
    });
});
