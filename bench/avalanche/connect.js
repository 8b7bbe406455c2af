// The published scenario "connection avalanche": N clients connect at once, subscribe to one public channel and leave; a client that has
// not subscribed after 10 s has failed. Parameters are those of the publication; the script is ours.
//
// A client subscribes when its socket is open, not when the server's first message comes: k6 drops a message that it reads before its own event
// `open`. A subscription to a public channel needs nothing of that message.

import { Counter, Rate, Trend } from 'k6/metrics';
import { WebSocket } from 'k6/websockets';

const { ADDRESS, APP_KEY, N = '1000' } = __ENV;

const connected = new Rate('connected');
const subscribed = new Rate('subscribed');
const connectLatency = new Trend('connect_latency');
const subscribeLatency = new Trend('subscribe_latency');
// Why a client has failed: the ten seconds were over, or the connection had an error.
const late = new Counter('late');
const refused = new Counter('refused');

export const options = {
    scenarios: { clients: { executor: 'per-vu-iterations', vus: Number(N), iterations: 1, maxDuration: '60s' } },
};

export default function client() {
    const began = Date.now();
    const socket = new WebSocket(`ws://${ADDRESS}/app/${APP_KEY}?protocol=7&client=k6&version=1.0`);
    let [established, done] = [false, false];
    const limit = setTimeout(() => {
        if (!done) {
            late.add(1);
        }
        socket.close();
    }, 10_000);
    socket.onopen = () => socket.send('{"event":"pusher:subscribe","data":{"channel":"avalanche"}}');
    socket.onmessage = ({ data }) => {
        const { event } = JSON.parse(data);
        if (event === 'pusher:connection_established') {
            established = true;
            connectLatency.add(Date.now() - began);
        } else if (event === 'pusher_internal:subscription_succeeded') {
            [established, done] = [true, true];
            subscribeLatency.add(Date.now() - began);
            socket.close();
        }
    };
    socket.onclose = () => {
        clearTimeout(limit);
        connected.add(established);
        subscribed.add(done);
    };
    // A connection that never opened has an error and no close.
    socket.onerror = () => {
        refused.add(1);
        if (!established) {
            clearTimeout(limit);
            connected.add(false);
            subscribed.add(false);
        }
    };
}
