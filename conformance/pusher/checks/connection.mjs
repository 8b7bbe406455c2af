// How a connection begins, is kept and ends. Pusher Channels, "WebSocket protocol": "Connection", "Ping and pong", "Error codes".

import { request } from '../lib/api.mjs';
import { Socket, connect, frame, PING, within } from '../lib/socket.mjs';
import { about, assert, check, fresh } from '../lib/suite.mjs';

/** A client for the time of a check. */
export async function client(target, options) {
    const socket = await connect(target, options);
    target.later(() => socket.destroy());
    return socket;
}

/** The server accepts the connection, sends the reason, and closes with that code. */
async function refused(target, code, options) {
    const socket = await Socket.open(target, options);
    target.later(() => socket.destroy());
    assert.equal(socket.status, 101, 'a code can only be told on an open WebSocket');
    const error = await socket.next('pusher:error');
    assert.equal(typeof error.data, 'object', 'the data of pusher:error is an object');
    assert.equal(error.data.code, code);
    assert.equal(typeof error.data.message, 'string');
    assert.equal((await within(socket.closed, 'the close')).code, code);
    assert.ok(!socket.left.some(({ event }) => event === 'pusher:connection_established'), 'it was established before');
}

about('connection', () => {
    check('is established with a socket id and an activity timeout, as JSON in a string', async (target) => {
        const socket = await Socket.open(target);
        target.later(() => socket.destroy());
        const established = await socket.next('pusher:connection_established');
        assert.equal(typeof established.data, 'string');
        const { socket_id: id, activity_timeout: timeout } = JSON.parse(established.data);
        assert.match(id, /^\d+\.\d+$/);
        assert.ok(Number.isInteger(timeout) && timeout > 0, `activity_timeout is ${timeout}`);
    });
    check('no two clients have the same socket id', async (target) => {
        const all = await Promise.all(Array.from({ length: 20 }, () => client(target)));
        assert.equal(new Set(all.map(({ id }) => id)).size, 20);
    });
    check('parameters that are not known do no harm', async (target) => {
        await (await client(target, { query: 'protocol=7&client=js&version=8.4.0&flash=false&x=%F0%9F%94%A5&y' })).alive();
    });
    check('an unknown key is 4001', (target) => refused({ ...target, app: { ...target.app, key: 'nobody' } }, 4001));
    check('a disabled application is 4003', { needs: 'disabled' }, (target) => refused(target.as('disabled'), 4003));
    check('an application for TLS only is 4000', { needs: 'tls' }, (target) => refused(target.as('tls'), 4000));
    check('one connection too many is 4004, and there is room again when one has left', { needs: 'limited' }, async (target) => {
        const limited = target.as('limited');
        const first = await client(limited);
        await client(limited);
        await refused(limited, 4004);
        await first.close();
        const end = Date.now() + 5000;
        for (;;) {
            try {
                await client(limited);
                break;
            } catch (error) {
                assert.ok(Date.now() < end, `still no room: ${error.message}`);
            }
        }
    });
    check('another path is 4005', (target) => refused(target, 4005, { path: '/application/x?protocol=7' }));
    check('a protocol that is no number is 4006', (target) => refused(target, 4006, { query: 'protocol=seven' }));
    check('a protocol of the future is 4007', (target) => refused(target, 4007, { query: 'protocol=99' }));
    check('a protocol of the past is 4007', (target) => refused(target, 4007, { query: 'protocol=3' }));
    check('no protocol is 4008', (target) => refused(target, 4008, { query: 'client=js&version=1.0' }));
    check('a page of another origin is 4009', { needs: 'origins' }, (target) => {
        return refused(target.as('origins'), 4009, { headers: { Origin: 'https://elsewhere.example' } });
    });
    check('a page whose origin only begins like an allowed one is 4009', { needs: 'origins' }, (target) => {
        return refused(target.as('origins'), 4009, { headers: { Origin: 'https://www.example.com.elsewhere.example' } });
    });
    check('a page of an allowed origin connects', { needs: 'origins' }, async (target) => {
        await (await client(target.as('origins'), { headers: { Origin: 'https://www.example.com' } })).alive();
    });
    check('a close frame is answered with its code', async (target) => {
        assert.equal((await (await client(target)).close(1000)).code, 1000);
        assert.equal((await (await client(target)).close(1001)).code, 1001);
    });
    check('a request without an upgrade is refused and not left hanging', async (target) => {
        const answer = await request(target, 'GET', `/app/${target.app.key}?protocol=7`);
        assert.ok([400, 404, 426].includes(answer.status), `status ${answer.status}`);
    });
    check('an upgrade without a key is 400', async (target) => {
        const socket = await Socket.open(target, { headers: { 'Sec-WebSocket-Key': null } });
        target.later(() => socket.destroy());
        assert.equal(socket.status, 400);
    });
    check('another version of WebSocket is 426 with the one that is spoken', async (target) => {
        const socket = await Socket.open(target, { headers: { 'Sec-WebSocket-Version': '12' } });
        target.later(() => socket.destroy());
        assert.equal(socket.status, 426);
        assert.equal(socket.headers['sec-websocket-version'], '13');
    });
    check('headers may be written in any case', async (target) => {
        const headers = { Upgrade: null, Connection: null, UPGRADE: 'WebSocket', connection: 'keep-alive, UPGRADE' };
        await (await client(target, { headers })).alive();
    });
});

about('ping', () => {
    check('pusher:ping is answered with pusher:pong', async (target) => {
        const socket = await client(target);
        socket.send({ event: 'pusher:ping', data: {} });
        const pong = await socket.next('pusher:pong');
        assert.ok(!('channel' in pong));
    });
    check('pusher:ping without data is answered too', async (target) => {
        const socket = await client(target);
        socket.send({ event: 'pusher:ping' });
        await socket.next('pusher:pong');
    });
    check('a ping frame is answered with its own payload', async (target) => {
        const socket = await client(target);
        socket.raw(frame(PING, 'spark'));
        await socket.settled();
        assert.deepEqual(socket.pongs, ['spark']);
    });
    check('a silent client is asked, and closed with 4201 when it does not answer', { needs: 'lively' }, async (target) => {
        const socket = await client(target.as('lively'), { answerPings: false });
        await socket.next('pusher:ping');
        assert.equal((await within(socket.closed, 'the close')).code, 4201);
    });
    check('a silent client that answers stays', { needs: 'patient' }, async (target) => {
        const socket = await client(target.as('patient'));
        for (let i = 0; i < 3; i += 1) {
            await socket.next('pusher:ping');
        }
        await socket.alive();
    });
    check('whatever a client says counts as an answer', { needs: 'patient' }, async (target) => {
        const socket = await client(target.as('patient'), { answerPings: false });
        for (let i = 0; i < 2; i += 1) {
            await socket.next('pusher:ping');
            await socket.subscribe(fresh());
        }
        await socket.next('pusher:ping');
        assert.equal(socket.closing, undefined);
    });
});
