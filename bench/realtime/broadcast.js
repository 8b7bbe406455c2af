// The published scenario "broadcast": clients come over RAMP seconds until there are MAX, each subscribes to one private channel and lives LIFE
// seconds; every fifth sends a client event with probability 0.4 every 200 ms. The parameters are those of the publication; the script is ours.
//
// The signature of a private channel needs the socket's id, so a client waits for the server's first message. k6 drops a message that it reads before
// its own event `open`, about once in 50,000 clients: such a client counts as a failure.

import { hmac } from 'k6/crypto';
import { Counter, Trend } from 'k6/metrics';
import { WebSocket } from 'k6/websockets';

const { ADDRESS, APP_KEY, APP_SECRET, MAX = '1000', RAMP = '120', LIFE = '45' } = __ENV;
const channel = 'private-broadcast';

const latency = new Trend('broadcast_latency');
const handshake = new Trend('handshake');
const subscription = new Trend('subscription');
const received = new Counter('received');
const sent = new Counter('sent');
const failures = new Counter('failures');

export const options = {
    scenarios: {
        clients: {
            executor: 'ramping-vus', startVUs: 1, gracefulRampDown: '1s', gracefulStop: `${LIFE}s`,
            stages: [{ duration: `${RAMP}s`, target: Number(MAX) }],
        },
    },
};

export default function client() {
    const began = Date.now();
    const socket = new WebSocket(`ws://${ADDRESS}/app/${APP_KEY}?protocol=7&client=k6&version=1.0`);
    let [subscribed, asked, timer] = [false, 0, undefined];
    const end = setTimeout(() => socket.close(), Number(LIFE) * 1000);
    socket.onopen = () => handshake.add(Date.now() - began);
    socket.onmessage = ({ data }) => {
        const message = JSON.parse(data);
        switch (message.event) {
            case 'pusher:connection_established': {
                const id = JSON.parse(message.data).socket_id;
                const auth = `${APP_KEY}:${hmac('sha256', APP_SECRET, `${id}:${channel}`, 'hex')}`;
                asked = Date.now();
                socket.send(JSON.stringify({ event: 'pusher:subscribe', data: { channel, auth } }));
                break;
            }
            case 'pusher_internal:subscription_succeeded':
                subscribed = true;
                subscription.add(Date.now() - asked);
                if (__VU % 5 === 0) {
                    timer = setInterval(() => {
                        if (Math.random() < 0.4) {
                            socket.send(JSON.stringify({ event: 'client-broadcast', channel, data: { at: Date.now() } }));
                            sent.add(1);
                        }
                    }, 200);
                }
                break;
            case 'pusher:ping':
                socket.send('{"event":"pusher:pong","data":{}}');
                break;
            case 'client-broadcast': {
                const told = typeof message.data === 'string' ? JSON.parse(message.data) : message.data;
                latency.add(Date.now() - told.at);
                received.add(1);
                break;
            }
            case 'pusher:error':
            case 'pusher:subscription_error':
                failures.add(1);
                break;
        }
    };
    socket.onerror = () => failures.add(1);
    socket.onclose = () => {
        clearInterval(timer);
        clearTimeout(end);
        if (!subscribed) {
            failures.add(1);
        }
    };
}
