// Signatures of the Pusher protocol, written from the documents without a library, because a check must not compare a library
// with itself.

import { createHash, createHmac } from 'node:crypto';

export const hmac = (secret, text) => createHmac('sha256', secret).update(text).digest('hex');

/** `auth` of a subscription; with `data` that of a presence channel. */
export function channelAuth(app, socketId, channel, data) {
    const signed = [socketId, channel, ...(data === undefined ? [] : [data])].join(':');
    return `${app.key}:${hmac(app.secret, signed)}`;
}

/** `auth` of a sign-in. */
export const userAuth = (app, socketId, userData) => `${app.key}:${hmac(app.secret, `${socketId}::user::${userData}`)}`;

/**
 * The query of a signed request. `change(parameters)` spoils them before they are signed, `spoil(query)` the query afterwards.
 */
export function signedQuery(app, method, path, { parameters = {}, body, change = () => {}, spoil = (query) => query } = {}) {
    const all = {
        auth_key: app.key,
        auth_timestamp: String(Math.floor(Date.now() / 1000)),
        auth_version: '1.0',
        ...(body === undefined ? {} : { body_md5: createHash('md5').update(body).digest('hex') }),
        ...parameters,
    };
    change(all);
    const sorted = Object.entries(all).map(([name, value]) => [name.toLowerCase(), value]).sort(([a], [b]) => (a < b ? -1 : 1));
    const signed = sorted.map(([name, value]) => `${name}=${value}`).join('&');
    const query = Object.entries(all).map(([name, value]) => `${name}=${encodeURIComponent(value)}`);
    query.push(`auth_signature=${hmac(app.secret, [method, path, signed].join('\n'))}`);
    return spoil(query.join('&'));
}
