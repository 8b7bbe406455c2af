// Receives the server's webhooks and keeps them, so that a check finds them at any time.

import http from 'node:http';
import { PATIENCE, TimeOut } from './socket.mjs';

export class Receiver {
    #server;
    #waiting = [];
    /** Every request: its headers, its body as it came, the body parsed, and how it was answered. */
    requests = [];

    async listen(port) {
        this.#server = http.createServer((request, answer) => {
            const parts = [];
            request.on('data', (part) => parts.push(part));
            request.on('end', () => {
                const body = Buffer.concat(parts).toString();
                let json = {};
                try { json = JSON.parse(body); } catch { /* a check will see that */ }
                // Webhooks about a channel with this word in its name fail at first.
                const before = this.requests.filter((one) => one.body === body).length;
                const status = body.includes('answer-500-once') && before === 0 ? 500 : 200;
                this.requests.push({ method: request.method, headers: request.headers, body, json, status, at: Date.now() });
                answer.writeHead(status).end();
                this.#waiting.splice(0).forEach((resolve) => resolve());
            });
        });
        await new Promise((resolve, reject) => {
            this.#server.on('error', reject);
            this.#server.listen(port, '127.0.0.1', resolve);
        });
    }

    /** All events that a receiver has accepted, with the request they came in. */
    events(channel) {
        return this.requests.filter(({ status }) => status === 200)
            .flatMap((request) => (request.json.events ?? []).map((event) => ({ ...event, request })))
            .filter((event) => channel === undefined || event.channel === channel);
    }

    /** The first event of that name and channel. Webhooks may be late on purpose: channel_vacated by some seconds. */
    async event(name, channel, likes = () => true, limit = PATIENCE * 2) {
        const end = Date.now() + limit;
        for (;;) {
            const found = this.events(channel).find((event) => event.name === name && likes(event));
            if (found) {
                return found;
            }
            if (Date.now() >= end) {
                const had = this.events(channel).map((event) => event.name).join(', ') || 'none';
                throw new TimeOut(`waited ${limit} ms for the webhook ${name} of ${channel}; had: ${had}`);
            }
            await new Promise((resolve) => {
                this.#waiting.push(resolve);
                setTimeout(resolve, Math.min(200, Math.max(1, end - Date.now())));
            });
        }
    }

    close() {
        this.#server.close();
        this.#server.closeAllConnections?.();
    }
}
