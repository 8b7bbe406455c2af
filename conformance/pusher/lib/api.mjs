// The HTTP API, with requests that may be invalid in any way.

import http from 'node:http';
import { signedQuery } from './sign.mjs';
import { within } from './socket.mjs';

/** Sends one request unchanged; `path` includes its query. */
export function request(target, method, path, { body, headers = {}, agent } = {}) {
    const url = new URL(target.url);
    return within(new Promise((resolve, reject) => {
        const all = body === undefined ? headers : { 'Content-Type': 'application/json', 'Content-Length': Buffer.byteLength(body), ...headers };
        Object.keys(all).forEach((name) => all[name] === null && delete all[name]);
        const sent = http.request({ host: url.hostname, port: url.port, method, path, headers: all, agent }, (answer) => {
            const parts = [];
            answer.on('data', (part) => parts.push(part));
            answer.on('end', () => {
                const text = Buffer.concat(parts).toString();
                let json;
                try { json = JSON.parse(text); } catch { /* an explanation in words */ }
                resolve({ status: answer.statusCode, headers: answer.headers, text, json });
            });
            answer.on('error', reject);
        });
        sent.on('error', reject);
        sent.end(body);
    }), `an answer to ${method} ${path.split('?')[0]}`);
}

/** A signed request; `path` without `/apps/ID`. */
export function call(target, method, path, options = {}) {
    const { app = target.app, id = app.id, body, ...signing } = options;
    const text = body === undefined || typeof body === 'string' ? body : JSON.stringify(body);
    const whole = `/apps/${id}${path}`;
    const query = signedQuery(app, method, decodeURIComponent(whole), { body: text, ...signing });
    return request(target, method, `${whole}?${query}`, { body: options.sentBody ?? text, headers: options.headers, agent: options.agent });
}

export const get = (target, path, parameters = {}, options = {}) => call(target, 'GET', path, { parameters, ...options });
export const post = (target, path, body, options = {}) => call(target, 'POST', path, { body, ...options });

/** Publishes and insists that it was taken. */
export async function publish(target, channel, name, data = '{}', more = {}) {
    const answer = await post(target, '/events', { name, channel, data, ...more });
    if (answer.status !== 200) {
        throw new Error(`publishing was answered with ${answer.status}: ${answer.text.slice(0, 200)}`);
    }
    return answer.json;
}
