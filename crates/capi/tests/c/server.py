"""An origin with faults on demand, for the C tests: what a path says is what it does. Also proxies, TLS and a unix socket. Loopback only.

Prints one line `name=value ...` with its ports, and ends when its standard input does.
"""
import base64
import gzip
import hashlib
import os
import select
import socket
import ssl
import struct
import sys
import threading
import time
import zlib
from urllib.parse import parse_qs, unquote, urlsplit

TEXT = b"the text that was compressed\n"
BROTLI = base64.b64decode("oeAAQG+kqv0lCBpdKZR1IYqIEoxa4ur6ny+H8BQ=")
ZSTD = base64.b64decode("KLUv/SQd6QAAdGhlIHRleHQgdGhhdCB3YXMgY29tcHJlc3NlZAoGmmX6")
counts = {}
lock = threading.Lock()


def count(key):
    with lock:
        counts[key] = counts.get(key, 0) + 1
        return counts[key]


class Gone(Exception):
    """The other end, or this one, has closed the connection."""


class Connection:
    """One connection of a client."""

    def __init__(self, sock):
        self.sock = sock
        self.buffer = b""

    def read(self):
        data = self.sock.recv(65536)
        if not data:
            raise Gone
        self.buffer += data

    def until(self, end):
        while end not in self.buffer:
            self.read()
        part, self.buffer = self.buffer.split(end, 1)
        return part

    def exactly(self, length):
        part, self.buffer = bytearray(self.buffer[:length]), self.buffer[length:]
        while len(part) < length:
            data = self.sock.recv(min(length - len(part), 1 << 20))
            if not data:
                raise Gone
            part += data
        return bytes(part)

    def send(self, data):
        self.sock.sendall(data)

    def reset(self):
        raw = self.sock
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        raise Gone

    def wait_for_the_end(self):
        """Says nothing until the client goes."""
        while self.sock.recv(65536):
            pass
        raise Gone

    def answer(self, body=b"", status="200 OK", fields=()):
        head = f"HTTP/1.1 {status}\r\nContent-Length: {len(body)}\r\n"
        head += "".join(f"{name}: {value}\r\n" for name, value in fields)
        self.send(head.encode() + b"\r\n" + (b"" if self.method == "HEAD" else body))

    def chunks(self, pieces, fields=(), trailers=()):
        head = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n"
        self.send((head + "".join(f"{name}: {value}\r\n" for name, value in fields) + "\r\n").encode())
        for piece in pieces:
            self.send(b"%x\r\n%s\r\n" % (len(piece), piece))
        self.send(b"0\r\n" + "".join(f"{name}: {value}\r\n" for name, value in trailers).encode() + b"\r\n")

    def request(self):
        head = self.until(b"\r\n\r\n").decode("latin-1")
        lines = head.split("\r\n")
        self.method, self.target, _ = lines[0].split(" ")
        self.raw = head
        self.fields = {}
        for line in lines[1:]:
            name, value = line.split(":", 1)
            name = name.strip().lower()
            self.fields[name] = (self.fields[name] + ", " if name in self.fields else "") + value.strip()

    def body(self):
        if self.fields.get("expect") == "100-continue":
            self.send(b"HTTP/1.1 100 Continue\r\n\r\n")
        trailers = ""
        if self.fields.get("transfer-encoding") == "chunked":
            body = b""
            while size := int(self.until(b"\r\n"), 16):
                body += self.exactly(size)
                self.exactly(2)
            while line := self.until(b"\r\n"):
                trailers += line.decode() + "\n"
        else:
            body = self.exactly(int(self.fields.get("content-length", 0)))
        self.trailers = trailers
        return body


def digest(connection, query, body):
    """Digest as RFC 7616 has it: user me, password a,b."""
    algorithm = query.get("algorithm", ["MD5"])[0]
    h = hashlib.md5 if algorithm == "MD5" else hashlib.sha256
    hexed = lambda text: h(text.encode()).hexdigest()
    nonce = query.get("nonce", ["n1"])[0]
    given = connection.fields.get("authorization", "")
    parts = dict(part.strip().split("=", 1) for part in given.removeprefix("Digest ").split(", ")) if given else {}
    part = lambda name: parts.get(name, "").strip('"')
    fresh = nonce
    if "stale" in query and part("nonce") != "n2":
        fresh = "n2" if given else nonce
    a1, a2 = hexed("me:here:a,b"), hexed(f"{connection.method}:{connection.target}")
    qop = query.get("qop", ["auth"])[0]
    if qop == "auth-int":
        a2 = hexed(f"{connection.method}:{connection.target}:{h(body).hexdigest()}")
    wanted = hexed(f"{a1}:{part('nonce')}:{part('nc')}:{part('cnonce')}:{qop}:{a2}")
    if given and part("response") == wanted and part("nonce") == ("n2" if "stale" in query else nonce):
        return connection.answer(b"welcome")
    stale = ", stale=true" if given and fresh != part("nonce") and part("response") == wanted else ""
    challenge = f'Digest realm="here", qop="{qop}", algorithm={algorithm}, nonce="{fresh}"{stale}'
    connection.answer(b"who?", "401 Unauthorized", [("WWW-Authenticate", challenge)])


def serve_one(connection, ports):
    url = urlsplit(connection.target)
    query = parse_qs(url.query, keep_blank_values=True)
    words = [unquote(word) for word in url.path.split("/")[1:]]
    word, rest = words[0], words[1:]
    if word == "early":
        connection.answer(b"no", "413 Too Large", [("Connection", "close")])
        time.sleep(0.05)
        raise Gone
    if word == "early-on":  # continues to read the body after its answer
        connection.answer(b"", "307 Go", [("Location", query["to"][0])])
        return connection.body()
    if word == "silent-body":  # reads the head and nothing of the body
        connection.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        time.sleep(30)
        raise Gone
    body = connection.body()
    if word == "ok":
        connection.answer(b"ok")
    elif word == "echo":
        seen = f"{connection.raw}\n\n".encode() + body + b"\n" + connection.trailers.encode()
        connection.answer(seen)
    elif word == "length":
        connection.answer(f"{len(body)} {hashlib.md5(body).hexdigest()}".encode())
    elif word == "size":
        connection.answer(b"x" * int(rest[0]))
    elif word == "slow":
        time.sleep(int(rest[0]) / 1000)
        connection.answer(b"slow")
    elif word == "drip":
        size, pause = int(rest[0]), int(rest[1]) / 1000
        connection.send(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % size)
        for _ in range(size):
            connection.send(b"d")
            time.sleep(pause)
    elif word == "silent":
        connection.wait_for_the_end()
    elif word == "silent-head":
        connection.send(b"HTTP/1.1 200 OK\r\nContent-Le")
        connection.wait_for_the_end()
    elif word == "silent-rest":
        connection.send(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nsome")
        connection.wait_for_the_end()
    elif word == "silent-chunk":
        connection.send(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nsome")
        connection.wait_for_the_end()
    elif word == "reset":
        connection.reset()
    elif word == "reset-body":
        connection.send(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nsome")
        connection.reset()
    elif word == "breaks":  # breaks off in its body each time, and counts
        count(url.path)
        connection.send(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nsome")
        connection.reset()
    elif word == "close":
        raise Gone
    elif word == "ok-close":  # promises to keep the connection, and closes it
        connection.answer(b"ok")
        raise Gone
    elif word == "short":
        connection.send(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nshort")
        raise Gone
    elif word == "long":
        connection.send(b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nlong, longer than said")
        raise Gone
    elif word == "both":
        connection.send(b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nboth\r\n0\r\n\r\n")
        raise Gone
    elif word == "until-close":
        connection.send(b"HTTP/1.1 200 OK\r\n\r\nuntil the end")
        raise Gone
    elif word == "bad-chunk":
        connection.send(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n")
        raise Gone
    elif word == "rubbish":
        connection.send(b"SSH-2.0-OpenSSH\r\n\r\n")
        raise Gone
    elif word == "nul":
        connection.send(b"HTTP/1.1 200 OK\r\nX: a\0b\r\nContent-Length: 0\r\n\r\n")
        raise Gone
    elif word == "not-utf8":
        connection.send(b"HTTP/1.1 200 OK\r\nX: \xff\xfe\r\nContent-Length: 2\r\n\r\n\xff\xfe")
    elif word == "http10":
        connection.send(b"HTTP/1.0 200 OK\r\n\r\nold")
        raise Gone
    elif word == "to":
        connection.answer(b"this way", f"{rest[0]} Go", [("Location", query["to"][0])])
    elif word == "to-large":
        connection.answer(b"x" * int(rest[0]), "302 Go", [("Location", "/ok")])
    elif word == "loop":
        connection.answer(b"", "302 Go", [("Location", "/loop")])
    elif word == "hops":
        left = int(rest[0])
        if left:
            connection.answer(b"hop", "302 Go", [("Location", f"/hops/{left - 1}"), ("X-Hop", str(left))])
        else:
            connection.answer(b"there")
    elif word == "two-cookies":
        connection.answer(b"", fields=[("Set-Cookie", "a=1; Path=/"), ("Set-Cookie", "b=2; Path=/")])
    elif word == "gzip":
        connection.answer(gzip.compress(TEXT), fields=[("Content-Encoding", "gzip")])
    elif word == "deflate":
        connection.answer(zlib.compress(TEXT), fields=[("Content-Encoding", "deflate")])
    elif word == "raw-deflate":
        packer = zlib.compressobj(9, zlib.DEFLATED, -15)
        connection.answer(packer.compress(TEXT) + packer.flush(), fields=[("Content-Encoding", "deflate")])
    elif word == "br":
        connection.answer(BROTLI, fields=[("Content-Encoding", "br")])
    elif word == "zstd":
        connection.answer(ZSTD, fields=[("Content-Encoding", "zstd")])
    elif word == "twice":
        connection.answer(gzip.compress(zlib.compress(TEXT)), fields=[("Content-Encoding", "deflate, gzip")])
    elif word == "bomb":
        connection.answer(gzip.compress(b"\0" * 50_000_000, 1), fields=[("Content-Encoding", "gzip")])
    elif word == "late-end":  # the encoded data end before the body does
        body = {"gzip": gzip.compress(TEXT), "deflate": zlib.compress(TEXT), "br": BROTLI, "zstd": ZSTD}[rest[0]]
        head = f"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nContent-Encoding: {rest[0]}\r\n\r\n"
        connection.send(head.encode() + b"%x\r\n%s\r\n" % (len(body), body))
        time.sleep(0.02)
        connection.send(b"0\r\nX-Sum: 42\r\n\r\n")
    elif word == "nothing":  # an encoded body without content
        connection.chunks([], [("Content-Encoding", rest[0])], [("X-Sum", "42")])
    elif word == "nothing-until-close":
        connection.send(f"HTTP/1.1 200 OK\r\nContent-Encoding: {rest[0]}\r\n\r\n".encode())
        raise Gone
    elif word == "bad-gzip":
        connection.answer(b"this is no gzip", fields=[("Content-Encoding", "gzip")])
    elif word == "half-gzip":
        connection.answer(gzip.compress(TEXT * 100)[:30], fields=[("Content-Encoding", "gzip")])
    elif word == "interim":
        connection.send(b"HTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\n")
        connection.answer(b"final")
    elif word == "trailers":
        connection.chunks([b"with ", b"trailers"], [("Trailer", "X-Sum")], [("X-Sum", "42")])
    elif word == "chunks":
        connection.chunks([b"c" * 1000] * int(rest[0]))
    elif word == "digest":
        digest(connection, query, body)
    elif word == "times":  # fails this many times with this status, then succeeds
        number = count(url.path)
        if number <= int(rest[1]):
            fields = [("Retry-After", query["after"][0])] if "after" in query else []
            connection.answer(b"not yet", f"{rest[0]} No", fields)
        else:
            connection.answer(str(number).encode())
    elif word == "times-reset":
        if count(url.path) <= int(rest[0]):
            connection.reset()
        connection.answer(b"at last")
    elif word == "count":
        connection.answer(str(counts.get("/" + "/".join(rest), 0)).encode())
    elif word == "duplicates":
        connection.answer(b"", fields=[("X", "1"), ("Y", "2"), ("x", "3")])
    else:
        connection.answer(b"nothing here", "404 Not Found")


def serve(sock, ports):
    connection = Connection(sock)
    try:
        if isinstance(sock, ssl.SSLSocket):
            sock.do_handshake()
        while True:
            connection.request()
            if connection.target.startswith("http://"):  # as through a proxy
                connection.target = connection.target.split("/", 3)[-1].join(["/", ""])
            serve_one(connection, ports)
    except (Gone, OSError, ValueError):
        pass
    finally:
        sock.close()


def pump(one, other):
    """Bytes both ways until either end is over."""
    while True:
        for sock in select.select([one, other], [], [])[0]:
            data = sock.recv(65536)
            if not data:
                return
            (other if sock is one else one).sendall(data)


def proxy(sock, ports):
    """CONNECT and absolute form with me:secret; SOCKS 4, 4A and 5."""
    connection = Connection(sock)
    far = None
    try:
        if isinstance(sock, ssl.SSLSocket):
            sock.do_handshake()
        first = connection.exactly(1)
        if first == b"\x04":
            _, port, address = struct.unpack("!BH4s", connection.exactly(7))
            connection.until(b"\0")
            named = address[:3] == b"\0\0\0" and address[3:] != b"\0"
            host = connection.until(b"\0").decode() if named else socket.inet_ntoa(address)
            far = socket.create_connection(("127.0.0.1" if host == "name.test" else host, port))
            connection.send(b"\0\x5a" + bytes(6))
        elif first == b"\x05":
            methods = connection.exactly(connection.exactly(1)[0])
            connection.send(b"\x05" + bytes([2 if 2 in methods else 0]))
            if 2 in methods:
                connection.exactly(1)
                user = connection.exactly(connection.exactly(1)[0])
                password = connection.exactly(connection.exactly(1)[0])
                right = (user, password) == (b"me", b"secret")
                connection.send(b"\x01" + bytes([0 if right else 1]))
                if not right:
                    raise Gone
            kind = connection.exactly(4)[3]
            host = socket.inet_ntoa(connection.exactly(4)) if kind == 1 else connection.exactly(connection.exactly(1)[0]).decode()
            (port,) = struct.unpack("!H", connection.exactly(2))
            far = socket.create_connection(("127.0.0.1" if host == "name.test" else host, port))
            connection.send(b"\x05\0\0\x01" + bytes(6))
        else:
            connection.buffer = first + connection.buffer
            connection.request()
            wanted = "Basic " + base64.b64encode(b"me:secret").decode()
            if connection.fields.get("proxy-authorization") != wanted:
                connection.answer(b"", "407 Who")
                raise Gone
            if connection.method != "CONNECT":
                connection.body()
                connection.answer(b"through the proxy: " + connection.target.encode())
                raise Gone
            host, port = connection.target.rsplit(":", 1)
            far = socket.create_connection(("127.0.0.1" if host == "name.test" else host, int(port)))
            connection.send(b"HTTP/1.1 200 OK\r\n\r\n")
        pump(sock, far)
    except (Gone, OSError, ValueError):
        pass
    finally:
        sock.close()
        if far:
            far.close()


def listen(work, ports, context=None, sock=None):
    if sock is None:
        sock = socket.socket()
        sock.bind(("127.0.0.1", 0))
    sock.listen(1024)

    def accept():
        while True:
            peer, _ = sock.accept()
            if peer.family == socket.AF_INET:
                peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if context:
                peer = context.wrap_socket(peer, server_side=True, do_handshake_on_connect=False)
            threading.Thread(target=work, args=(peer, ports), daemon=True).start()

    threading.Thread(target=accept, daemon=True).start()
    name = sock.getsockname()
    return name[1] if isinstance(name, tuple) else name


def main():
    folder = sys.argv[1]
    ports = {}
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(f"{folder}/server.pem", f"{folder}/server.key")
    strict = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    strict.load_cert_chain(f"{folder}/server.pem", f"{folder}/server.key")
    strict.load_verify_locations(f"{folder}/client.pem")
    strict.verify_mode = ssl.CERT_REQUIRED
    ports["http"] = listen(serve, ports)
    ports["other"] = listen(serve, ports)
    ports["https"] = listen(serve, ports, context)
    ports["strict"] = listen(serve, ports, strict)
    ports["proxy"] = listen(proxy, ports)
    ports["proxys"] = listen(proxy, ports, context)
    ports["proxystrict"] = listen(proxy, ports, strict)
    # Accepts connections and sends nothing.
    mute = socket.socket()
    mute.bind(("127.0.0.1", 0))
    mute.listen(1024)
    ports["mute"] = mute.getsockname()[1]
    # Accepts no connection: its queue is full.
    full = socket.socket()
    full.bind(("127.0.0.1", 0))
    full.listen(0)
    ports["full"] = full.getsockname()[1]
    waiting = []
    for _ in range(4):
        sock = socket.socket()
        sock.setblocking(False)
        sock.connect_ex(full.getsockname())
        waiting.append(sock)
    # A port without a listener.
    closed = socket.socket()
    closed.bind(("127.0.0.1", 0))
    ports["closed"] = closed.getsockname()[1]
    unix = socket.socket(socket.AF_UNIX)
    unix.bind(f"{folder}/unix.sock")
    listen(serve, ports, sock=unix)
    print(" ".join(f"{name}={port}" for name, port in ports.items()), flush=True)
    sys.stdin.read()
    os._exit(0)


main()
