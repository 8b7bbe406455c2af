/**
 * For clients of Hearth's channels with history: after a dropped connection, pusher-js (and Laravel Echo, which uses it) gets the missed
 * events.
 *
 *     import { resume } from '@hearth/echo';
 *     resume(echo);                         // or resume(pusher)
 *     resume(echo, { onGap: (channel) => reload(channel) });
 *
 * Promises: each event arrives once and in order. If missed events are not available any more, `onGap` is called. On channels without
 * history, and with other servers, nothing changes. Written for pusher-js 7 and 8.
 */
export function resume(echoOrPusher, { onGap = () => {} } = {}) {
    const pusher = echoOrPusher.connector?.pusher ?? echoOrPusher;
    /** The position of each channel: epoch, offset, and socket. */
    const places = new Map();

    const send = pusher.send_event;
    pusher.send_event = function (name, data, channel) {
        if (name === 'pusher:subscribe' && places.has(data.channel)) {
            data = { ...data, resume: { ...places.get(data.channel) } };
        } else if (name === 'pusher:unsubscribe') {
            places.delete(data.channel);
        }
        return send.call(this, name, data, channel);
    };

    const receive = ({ data: text }) => {
        // pusher-js has parsed it already; most messages have nothing for us.
        if (typeof text !== 'string' || !/"offset"|subscription_succeeded|hearth:resume/.test(text)) {
            return;
        }
        const message = JSON.parse(text);
        const place = places.get(message.channel);
        // The server's second event comes when its own history has a gap; the subscription goes on.
        if (message.event === 'pusher_internal:subscription_succeeded' || message.event === 'hearth:resume') {
            const { resume: now, recovered } = parsed(message.data);
            if (now === undefined) {
                places.delete(message.channel);
            } else if (recovered === true && place) {
                // The missed events arrive now, and advance the offset.
                place.socket_id = pusher.connection.socket_id;
            } else {
                places.set(message.channel, { ...now, socket_id: pusher.connection.socket_id });
            }
            if (recovered === false) {
                onGap(message.channel);
            }
        } else if (place && Number.isInteger(message.offset)) {
            place.offset = message.offset;
        }
    };

    // pusher-js does not pass the offset on, so the plug-in reads its transport.
    const listen = () => {
        const transport = pusher.connection.connection?.transport;
        if (transport === undefined) {
            throw new Error('@hearth/echo: this version of pusher-js has its transport in another place');
        }
        transport.unbind('message', receive);
        transport.bind('message', receive);
    };
    pusher.connection.bind('connected', listen);
    if (pusher.connection.state === 'connected') {
        listen();
    }
    return pusher;
}

function parsed(data) {
    return typeof data === 'string' ? JSON.parse(data) : data;
}
