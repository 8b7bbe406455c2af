// A WebSocket client that can also be wrong: every byte of a frame is the caller's to choose (RFC 6455, section 5).

import { randomBytes, createHash } from 'node:crypto';
import net from 'node:net';
import { channelAuth, userAuth } from './sign.mjs';

export const PATIENCE = Number(process.env.PATIENCE_MS ?? 10_000);
export const TEXT = 1, BINARY = 2, CLOSE = 8, PING = 9, PONG = 10, CONTINUATION = 0;

export class TimeOut extends Error {}

/** Returns the result of `promise`, or an error that names what was awaited. */
export function within(promise, what, limit = PATIENCE) {
    let timer;
    const late = new Promise((_, reject) => {
        timer = setTimeout(() => reject(new TimeOut(`waited ${limit} ms for ${what}`)), limit);
    });
    return Promise.race([promise, late]).finally(() => clearTimeout(timer));
}

/** Bytes of one frame. */
export function frame(opcode, payload = '', { fin = true, reserved = 0, masked = true, length } = {}) {
    const body = Buffer.isBuffer(payload) ? payload : Buffer.from(payload);
    const size = length ?? BigInt(body.length);
    const head = [(fin ? 0x80 : 0) | (reserved << 4) | opcode];
    const mask = masked ? 0x80 : 0;
    if (size < 126n) {
        head.push(mask | Number(size));
    } else if (size < 65536n) {
        head.push(mask | 126, Number(size) >> 8, Number(size) & 0xff);
    } else {
        const long = Buffer.alloc(8);
        long.writeBigUInt64BE(size);
        head.push(mask | 127, ...long);
    }
    if (!masked) {
        return Buffer.concat([Buffer.from(head), body]);
    }
    const key = randomBytes(4);
    return Buffer.concat([Buffer.from(head), key, body.map((byte, i) => byte ^ key[i % 4])]);
}

/** A client. It keeps messages until a check takes them. */
export class Socket {
    #socket;
    #input = Buffer.alloc(0);
    #messages = [];
    #waiting = [];
    #answerPings;
    #pieces = [];
    closing;
    pongs = [];

    /** Connects and reads the answer's head into `status` and `headers`. */
    static async open(target, { query = 'protocol=7&client=conformance&version=1.0', headers = {}, path, answerPings = true } = {}) {
        const socket = new Socket();
        socket.#answerPings = answerPings;
        socket.app = target.app;
        await within(socket.#upgrade(target, path ?? `/app/${target.app.key}?${query}`, headers), 'an answer to the upgrade');
        return socket;
    }

    #upgrade(target, path, headers) {
        const url = new URL(target.url);
        this.#socket = net.connect({ host: url.hostname, port: url.port });
        this.#socket.setNoDelay(true);
        const key = randomBytes(16).toString('base64');
        const all = {
            Host: url.host, Upgrade: 'websocket', Connection: 'Upgrade', 'Sec-WebSocket-Version': '13', 'Sec-WebSocket-Key': key, ...headers,
        };
        const lines = Object.entries(all).filter(([, value]) => value !== null).map(([name, value]) => `${name}: ${value}\r\n`);
        this.#socket.write(`GET ${path} HTTP/1.1\r\n${lines.join('')}\r\n`);
        const accept = createHash('sha1').update(`${key}258EAFA5-E914-47DA-95CA-C5AB0DC85B11`).digest('base64');
        let ended;
        this.closed = new Promise((resolve) => { ended = resolve; });
        const over = (how) => {
            this.closing ??= how;
            ended(this.closing);
            this.#wake();
        };
        return new Promise((resolve, reject) => {
            this.#socket.on('error', (error) => {
                over({ code: null, reason: error.code });
                reject(error);
            });
            this.#socket.on('close', () => {
                over({ code: null, reason: 'no close frame' });
                reject(new Error('the connection ended before it was answered'));
            });
            this.#socket.on('data', (bytes) => {
                this.#input = Buffer.concat([this.#input, bytes]);
                if (this.status === undefined) {
                    const end = this.#input.indexOf('\r\n\r\n');
                    if (end < 0) {
                        return;
                    }
                    const [first, ...rest] = this.#input.subarray(0, end).toString().split('\r\n');
                    this.#input = this.#input.subarray(end + 4);
                    this.status = Number(first.split(' ')[1]);
                    this.headers = Object.fromEntries(rest.map((line) => {
                        const colon = line.indexOf(':');
                        return [line.slice(0, colon).toLowerCase(), line.slice(colon + 1).trim()];
                    }));
                    if (this.status === 101 && this.headers['sec-websocket-accept'] !== accept) {
                        reject(new Error('Sec-WebSocket-Accept is wrong'));
                    }
                    resolve();
                }
                if (this.status === 101) {
                    this.#frames(over);
                }
            });
        });
    }

    #frames(over) {
        for (;;) {
            const input = this.#input;
            if (input.length < 2) {
                return;
            }
            let [size, start] = [input[1] & 0x7f, 2];
            if (size === 126) {
                [size, start] = [input.length >= 4 ? input.readUInt16BE(2) : Infinity, 4];
            } else if (size === 127) {
                [size, start] = [input.length >= 10 ? Number(input.readBigUInt64BE(2)) : Infinity, 10];
            }
            if (input.length < start + size) {
                return;
            }
            const payload = input.subarray(start, start + size);
            this.#input = input.subarray(start + size);
            if (input[1] & 0x80) {
                over({ code: null, reason: 'the server masks its frames' });
            }
            this.#frame(input[0] & 0x0f, Boolean(input[0] & 0x80), payload, over);
        }
    }

    #frame(opcode, last, payload, over) {
        if (opcode === PING) {
            this.raw(frame(PONG, payload));
        } else if (opcode === PONG) {
            this.pongs.push(payload.toString());
            this.#wake();
        } else if (opcode === CLOSE) {
            const code = payload.length >= 2 ? payload.readUInt16BE(0) : 1005;
            this.closing ??= { code, reason: payload.subarray(2).toString() };
            this.raw(frame(CLOSE, payload.subarray(0, 2)));
            over(this.closing);
        } else {
            this.#pieces.push(payload);
            if (last) {
                const text = Buffer.concat(this.#pieces.splice(0)).toString();
                const message = JSON.parse(text);
                message.text = text;
                if (message.event === 'pusher:ping' && this.#answerPings) {
                    this.send({ event: 'pusher:pong', data: {} });
                }
                this.#messages.push(message);
                this.#wake();
            }
        }
    }

    #wake() {
        this.#waiting.splice(0).forEach((resolve) => resolve());
    }

    /** Sends raw bytes. */
    raw(bytes) {
        if (!this.#socket.destroyed) {
            this.#socket.write(bytes);
        }
    }

    send(message) {
        this.raw(frame(TEXT, typeof message === 'string' ? message : JSON.stringify(message)));
    }

    /** Reads nothing more, until it does again. */
    pause() {
        this.#socket.pause();
    }

    resume() {
        this.#socket.resume();
    }

    /** Gone without a word. */
    destroy() {
        this.#socket.resetAndDestroy?.() ?? this.#socket.destroy();
    }

    /** Says goodbye, and waits for the answer. */
    close(code = 1000) {
        const payload = Buffer.alloc(2);
        payload.writeUInt16BE(code);
        this.raw(frame(CLOSE, payload));
        return within(this.closed, 'the answer to a close frame');
    }

    /** Takes the first message that matches `wanted`, an event's name or a function; earlier ones stay. */
    async next(wanted, limit = PATIENCE) {
        const likes = typeof wanted === 'function' ? wanted : (message) => message.event === wanted;
        const what = typeof wanted === 'function' ? wanted.what ?? 'a certain message' : wanted;
        const end = Date.now() + limit;
        for (;;) {
            const at = this.#messages.findIndex(likes);
            if (at >= 0) {
                return this.#messages.splice(at, 1)[0];
            }
            if (this.closing) {
                throw new Error(`closed with ${this.closing.code} (${this.closing.reason}) before ${what} came`);
            }
            await within(new Promise((resolve) => this.#waiting.push(resolve)), `${what}; had: ${this.seen()}`, Math.max(1, end - Date.now()));
        }
    }

    /** Messages that no check has taken. */
    get left() {
        return [...this.#messages];
    }

    seen() {
        return this.#messages.map((message) => message.text).join(' ').slice(0, 400) || 'nothing';
    }

    /** Waits until the server has handled all earlier messages, or the connection is closed. */
    async settled() {
        this.send({ event: 'pusher:ping', data: {} });
        await Promise.race([this.next('pusher:pong'), this.closed]);
        return this.closing;
    }

    /** The connection answers. */
    async alive() {
        this.send({ event: 'pusher:ping', data: {} });
        await this.next('pusher:pong');
    }

    subscribeTo(channel, more = {}) {
        this.send({ event: 'pusher:subscribe', data: { channel, ...more } });
    }

    /** Subscribes with the signature that the name requires; `user` is a presence channel's channel_data. */
    async subscribe(channel, user) {
        const data = user === undefined ? undefined : typeof user === 'string' ? user : JSON.stringify(user);
        const signed = /^(private|presence)-/.test(channel);
        this.subscribeTo(channel, {
            ...(signed ? { auth: channelAuth(this.app, this.id, channel, data) } : {}),
            ...(data === undefined ? {} : { channel_data: data }),
        });
        return this.next(named('pusher_internal:subscription_succeeded', channel));
    }

    /** The refusal of a subscription: a `pusher:subscription_error` of the channel, or a `pusher:error`. */
    refusal(channel) {
        const likes = (message) => (message.event === 'pusher:subscription_error' && message.channel === channel) || message.event === 'pusher:error';
        likes.what = `a refusal of ${channel}`;
        return this.next(likes);
    }

    signIn(user) {
        const data = typeof user === 'string' ? user : JSON.stringify(user);
        this.send({ event: 'pusher:signin', data: { auth: userAuth(this.app, this.id, data), user_data: data } });
    }

    async signedIn(user) {
        this.signIn(user);
        return this.next('pusher:signin_success');
    }
}

/** An event of a channel. */
export function named(event, channel) {
    const likes = (message) => message.event === event && message.channel === channel;
    likes.what = `${event} on ${channel}`;
    return likes;
}

/** A client that is connected: its `id` is its socket id. */
export async function connect(target, options) {
    const socket = await Socket.open(target, options);
    if (socket.status !== 101) {
        throw new Error(`the upgrade was answered with ${socket.status}`);
    }
    const established = await socket.next('pusher:connection_established');
    socket.established = JSON.parse(established.data);
    socket.id = socket.established.socket_id;
    return socket;
}
