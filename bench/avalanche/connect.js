// The published scenario "connection avalanche": N clients connect at once, subscribe to one public channel and leave. A client that
// has not subscribed after 10 s has failed. The parameters are those of the publication; the script is ours.

import { Rate, Trend } from 'k6/metrics';
import { WebSocket } from 'k6/websockets';

const { ADDRESS, APP_KEY, N = '1000' } = __ENV;

const connected = new Rate('connected');
const subscribed = new Rate('subscribed');
const connectLatency = new Trend('connect_latency');
const subscribeLatency = new Trend('subscribe_latency');

export const options = {
    scenarios: { clients: { executor: 'per-vu-iterations', vus: Number(N), iterations: 1, maxDuration: '60s' } },
};

export default function client() {
    const began = Date.now();
    const socket = new WebSocket(`ws://${ADDRESS}/app/${APP_KEY}?protocol=7&client=k6&version=1.0`);
    let [established, done] = [false, false];
    const limit = setTimeout(() => socket.close(), 10_000);
    socket.onmessage = ({ data }) => {
        const { event } = JSON.parse(data);
        if (event === 'pusher:connection_established') {
            established = true;
            connectLatency.add(Date.now() - began);
            socket.send('{"event":"pusher:subscribe","data":{"channel":"avalanche"}}');
        } else if (event === 'pusher_internal:subscription_succeeded') {
            done = true;
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
        if (!established) {
            clearTimeout(limit);
            connected.add(false);
            subscribed.add(false);
        }
    };
}
