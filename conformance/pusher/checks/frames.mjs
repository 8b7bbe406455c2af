// RFC 6455 as far as a peer can break it. After each, the server serves others.

import { client } from './connection.mjs';
import { BINARY, CLOSE, CONTINUATION, PING, TEXT, frame, within } from '../lib/socket.mjs';
import { about, assert, check, fresh } from '../lib/suite.mjs';

const ping = '{"event":"pusher:ping","data":{}}';

/** What closes the connection with one of these codes. */
function closes(name, codes, bytes) {
    check(`${name} is closed with ${codes.join(' or ')}`, async (target) => {
        const socket = await client(target);
        socket.raw(typeof bytes === 'function' ? bytes(socket) : bytes);
        const { code, reason } = await within(socket.closed, 'the close');
        assert.ok(codes.includes(code), `closed with ${code} (${reason})`);
        await (await client(target)).alive();
    });
}

about('frame', () => {
    closes('one without a mask', [1002], frame(TEXT, ping, { masked: false }));
    for (const reserved of [1, 2, 4]) {
        closes(`reserved bit ${reserved}`, [1002], frame(TEXT, ping, { reserved }));
    }
    for (const opcode of [3, 7, 11, 15]) {
        closes(`opcode ${opcode}`, [1002], frame(opcode, ping));
    }
    closes('a ping in pieces', [1002], frame(PING, 'x', { fin: false }));
    closes('a ping of 126 bytes', [1002], frame(PING, 'x'.repeat(126)));
    closes('a continuation of nothing', [1002], frame(CONTINUATION, ping));
    closes('a text within a text', [1002], Buffer.concat([frame(TEXT, '{', { fin: false }), frame(TEXT, ping)]));
    closes('a close of one byte', [1002], frame(CLOSE, Buffer.from([3])));
    closes('a close with a code that nobody may send', [1002], frame(CLOSE, Buffer.from([0x03, 0xed])));
    closes('a close whose reason is no UTF-8', [1002, 1007], frame(CLOSE, Buffer.from([0x03, 0xe8, 0xff, 0xfe])));
    closes('text that is no UTF-8', [1007], frame(TEXT, Buffer.from([0x22, 0xff, 0xfe, 0x22])));
    closes('a length of 2^62', [1002, 1009, 4100, 4301], frame(TEXT, '', { length: 1n << 62n }));
    closes('a length with its highest bit', [1002, 1009, 4100, 4301], frame(TEXT, '', { length: 1n << 63n }));
    closes('a message of 4 MiB', [1009, 4100, 4301], frame(TEXT, `{"event":"client-x","data":"${'x'.repeat(4 << 20)}"}`));

    check('a binary one is answered with an error or a close', async (target) => {
        const socket = await client(target);
        socket.raw(frame(BINARY, ping));
        await Promise.race([socket.next('pusher:error'), within(socket.closed, 'a close')]);
        await (await client(target)).alive();
    });
    check('a message in pieces, with a ping between them, is one message', async (target) => {
        const socket = await client(target);
        const channel = fresh();
        const text = JSON.stringify({ event: 'pusher:subscribe', data: { channel } });
        socket.raw(frame(TEXT, text.slice(0, 5), { fin: false }));
        socket.raw(frame(PING, 'between'));
        socket.raw(frame(CONTINUATION, text.slice(5, 9), { fin: false }));
        socket.raw(frame(CONTINUATION, text.slice(9)));
        assert.equal((await socket.next('pusher_internal:subscription_succeeded')).channel, channel);
        assert.deepEqual(socket.pongs, ['between']);
    });
    check('UTF-8 may be cut anywhere between pieces', async (target) => {
        const socket = await client(target);
        const bytes = Buffer.from('{"event":"pusher:ping","data":{"é":"🔥"}}');
        const cut = bytes.indexOf('🔥') + 2;
        socket.raw(frame(TEXT, bytes.subarray(0, cut), { fin: false }));
        socket.raw(frame(CONTINUATION, bytes.subarray(cut)));
        await socket.next('pusher:pong');
    });
    check('bytes may come one by one', async (target) => {
        const socket = await client(target);
        for (const byte of frame(TEXT, ping)) {
            socket.raw(Buffer.from([byte]));
            await new Promise((resolve) => setTimeout(resolve, 1));
        }
        await socket.next('pusher:pong');
    });
    check('a hundred messages may come at once', async (target) => {
        const socket = await client(target);
        socket.raw(Buffer.concat(Array.from({ length: 100 }, () => frame(TEXT, ping))));
        for (let i = 0; i < 100; i += 1) {
            await socket.next('pusher:pong');
        }
    });
    check('lengths may be written longer than they need to be, or it is closed with 1002', async (target) => {
        // RFC 6455, section 5.2: the minimal number of bytes MUST be used; a server may be lenient but not confused.
        const socket = await client(target);
        const short = frame(TEXT, ping);
        socket.raw(Buffer.concat([Buffer.from([short[0], 0xfe, 0, short[1] & 0x7f]), short.subarray(2)]));
        const outcome = await Promise.race([
            socket.next('pusher:pong').then(() => 'pong'), within(socket.closed, 'a close').then(({ code }) => code),
        ]);
        assert.ok(['pong', 1002].includes(outcome), `got ${outcome}`);
    });
    check('a message of no bytes does not hang the connection', async (target) => {
        const socket = await client(target);
        socket.raw(frame(TEXT, ''));
        await socket.settled();
        await (await client(target)).alive();
    });
});
