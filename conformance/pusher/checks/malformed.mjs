// Invalid messages. Each gets an answer or none, and then the connection stays open or is closed with a code. It never becomes half dead
// (AnyCable's reader stops forever), and the process never ends (AnyCable: a subscription without data; Sockudo: 20,000 brackets).

import { client } from './connection.mjs';
import { frame, TEXT } from '../lib/socket.mjs';
import { about, assert, check, fresh } from '../lib/suite.mjs';
import { channelAuth } from '../lib/sign.mjs';
import { publish } from '../lib/api.mjs';
import { named } from '../lib/socket.mjs';

const deep = (open, close, inner = '') => open.repeat(20_000) + inner + close.repeat(20_000);

const messages = {
    'no JSON': 'hello',
    'half of JSON': '{"event":"pusher:subscribe","data":{"channel":"x"',
    'JSON and more behind it': '{"event":"pusher:ping","data":{}} {"event":"pusher:ping"}',
    'an empty list': '[]',
    'a text': '"pusher:ping"',
    'a number': '5',
    'null': 'null',
    'true': 'true',
    'an empty object': '{}',
    'an event that is a number': '{"event":5,"data":{}}',
    'an event that is null': '{"event":null,"data":{}}',
    'an event that is a list': '{"event":["pusher:ping"],"data":{}}',
    'an empty event': '{"event":"","data":{}}',
    'an event with NUL': '{"event":"pusher:ping\\u0000","data":{}}',
    'half of a surrogate pair': '{"event":"\\ud83d","data":"\\udd25"}',
    'an escape that is none': '{"event":"\\x","data":{}}',
    'a number too long': `{"event":"pusher:ping","data":${'9'.repeat(5000)}e999999}`,
    'a key twice': '{"event":"pusher:foo","event":"pusher:bar","data":{}}',
    'white space only': ' '.repeat(100),
    'a byte order mark': '\ufeff{"event":"pusher:ping","data":{}}',
    'comments': '{"event":"pusher:ping",/* now */"data":{}}',
    'an unknown event of pusher': '{"event":"pusher:make_tea","data":{}}',
    'an event of pusher_internal': '{"event":"pusher_internal:subscription_succeeded","channel":"x","data":"{}"}',
    '20,000 opening brackets': '['.repeat(20_000),
    '20,000 lists in each other': deep('[', ']'),
    '20,000 objects in each other': deep('{"a":', '}', '1'),
    '20,000 brackets as data': `{"event":"pusher:subscribe","data":${deep('[', ']')}}`,
    '20,000 brackets in the data of a client event': `{"event":"client-x","channel":"private-x","data":${deep('[', ']')}}`,
    '20,000 quotes': '"'.repeat(20_000),
    '20,000 backslashes': `{"event":"${'\\'.repeat(20_000)}`,
    'a subscription without data': '{"event":"pusher:subscribe"}',
    'a subscription with null for data': '{"event":"pusher:subscribe","data":null}',
    'a subscription with a text for data': '{"event":"pusher:subscribe","data":"news"}',
    'a subscription with a list for data': '{"event":"pusher:subscribe","data":[]}',
    'a subscription with a number for data': '{"event":"pusher:subscribe","data":5}',
    'a subscription to nothing': '{"event":"pusher:subscribe","data":{}}',
    'a subscription to a number': '{"event":"pusher:subscribe","data":{"channel":5}}',
    'a subscription to null': '{"event":"pusher:subscribe","data":{"channel":null}}',
    'a subscription to a list': '{"event":"pusher:subscribe","data":{"channel":["a"]}}',
    'a subscription with a number for auth': '{"event":"pusher:subscribe","data":{"channel":"private-x","auth":5}}',
    'a subscription with an empty auth': '{"event":"pusher:subscribe","data":{"channel":"private-x","auth":""}}',
    'a subscription with only a colon for auth': '{"event":"pusher:subscribe","data":{"channel":"private-x","auth":":"}}',
    'a presence subscription without anything': '{"event":"pusher:subscribe","data":{"channel":"presence-x"}}',
    'a presence subscription with an object for channel_data': '{"event":"pusher:subscribe","data":{"channel":"presence-x","auth":"a:b","channel_data":{}}}',
    'an unsubscription without data': '{"event":"pusher:unsubscribe"}',
    'an unsubscription from nothing': '{"event":"pusher:unsubscribe","data":{}}',
    'an unsubscription from what was never subscribed': '{"event":"pusher:unsubscribe","data":{"channel":"never"}}',
    'a sign-in without data': '{"event":"pusher:signin"}',
    'a sign-in with null for data': '{"event":"pusher:signin","data":null}',
    'a sign-in with numbers': '{"event":"pusher:signin","data":{"auth":1,"user_data":2}}',
    'a client event without anything': '{"event":"client-x"}',
    'a client event with a number for its channel': '{"event":"client-x","channel":5,"data":{}}',
    'a client event with null for its channel': '{"event":"client-x","channel":null,"data":null}',
};

about('malformed', () => {
    for (const [name, text] of Object.entries(messages)) {
        check(name, async (target) => {
            const socket = await client(target);
            socket.raw(frame(TEXT, text));
            const closing = await socket.settled();
            if (closing) {
                assert.ok(closing.code >= 1000, `the connection broke off: ${closing.reason}`);
            }
            await (await client(target)).alive();
        });
    }
    for (const [name, data] of Object.entries({
        'no channel_data': undefined,
        'channel_data that is no JSON': 'me',
        'channel_data that is a text': '"me"',
        'channel_data that is a list': '["me"]',
        'channel_data that is null': 'null',
        'channel_data without a user_id': '{"user_info":{}}',
        'channel_data with null for a user_id': '{"user_id":null}',
        'channel_data with a list for a user_id': '{"user_id":["a"]}',
        'channel_data with an empty user_id': '{"user_id":""}',
        'channel_data of 20,000 brackets': `{"user_id":"a","user_info":${deep('[', ']')}}`,
    })) {
        check(`a signed presence subscription with ${name} is refused, and the connection goes on`, async (target) => {
            const socket = await client(target);
            const channel = fresh('presence');
            socket.subscribeTo(channel, {
                auth: channelAuth(target.app, socket.id, channel, data), ...(data === undefined ? {} : { channel_data: data }),
            });
            // A message that is too large may also close the connection.
            const closing = await Promise.race([socket.refusal(channel).then(() => undefined, () => socket.closing), socket.closed]);
            if (closing) {
                assert.ok(data?.length > 10_000 && closing.code >= 1000, `closed with ${closing.code} (${closing.reason})`);
            } else {
                await socket.alive();
            }
        });
    }
    check('a client cannot say what only the server says', async (target) => {
        const channel = fresh('presence');
        const victim = await client(target);
        await victim.subscribe(channel, { user_id: 'victim' });
        const attacker = await client(target);
        await attacker.subscribe(channel, { user_id: 'attacker' });
        await victim.next('pusher_internal:member_added');
        for (const event of ['pusher_internal:member_removed', 'pusher:subscription_succeeded', 'news', 'pusher:member_added']) {
            attacker.send({ event, channel, data: '{"user_id":"victim"}' });
        }
        await attacker.settled();
        await publish(target, channel, 'last');
        await victim.next(named('last', channel));
        assert.equal(victim.seen(), 'nothing');
    });
});
