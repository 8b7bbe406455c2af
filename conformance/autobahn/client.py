"""A WebSocket client that can break every rule: frames with any bits, in any pieces (RFC 6455, RFC 7692)."""

import base64
import hashlib
import hmac
import json
import os
import socket
import struct
import zlib

CONTINUATION, TEXT, BINARY, CLOSE, PING, PONG = 0, 1, 2, 8, 9, 10
# Long enough for any machine; a case that waits for so long has failed.
ANSWER_SECONDS = 30
KEY, SECRET, CHANNEL, EVENT = "key", "secret", "private-c", "client-e"
CHANNELS = f"/app/{KEY}?protocol=7&client=autobahn&version=1"
PREFIX = json.dumps({"event": EVENT, "channel": CHANNEL, "data": ""}, separators=(",", ":"))[:-2].encode()
SUFFIX = b'"}'
TAIL = b"\x00\x00\xff\xff"


def masked(payload: bytes, mask: bytes) -> bytes:
    if not payload:
        return b""
    repeated = (mask * (len(payload) // 4 + 1))[: len(payload)]
    return (int.from_bytes(payload, "little") ^ int.from_bytes(repeated, "little")).to_bytes(len(payload), "little")


def frame(opcode: int, payload: bytes = b"", *, fin: bool = True, rsv: int = 0, length: int | None = None) -> bytes:
    """A frame of a client; `length` may announce more than `payload` has."""
    size = len(payload) if length is None else length
    if size < 126:
        head = struct.pack(">BB", fin << 7 | rsv << 4 | opcode, 0x80 | size)
    elif size < 1 << 16:
        head = struct.pack(">BBH", fin << 7 | rsv << 4 | opcode, 0xFE, size)
    else:
        head = struct.pack(">BBQ", fin << 7 | rsv << 4 | opcode, 0xFF, size)
    mask = os.urandom(4)
    return head + mask + masked(payload, mask)


class Ended(Exception):
    """The server closed the connection, or did not answer in time."""


class Client:
    """One connection; to channels it is already past `pusher:connection_established`."""

    def __init__(self, port: int, offer: str | None = None, target: str | None = None):
        self.socket = socket.create_connection(("127.0.0.1", port), ANSWER_SECONDS)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.buffer = bytearray()
        self.close_code: int | None = None
        self.closed = False
        extension = f"Sec-WebSocket-Extensions: {offer}\r\n" if offer else ""
        self.socket.sendall(
            f"GET {target or CHANNELS} HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
            f"Sec-WebSocket-Key: {base64.b64encode(os.urandom(16)).decode()}\r\nSec-WebSocket-Version: 13\r\n{extension}\r\n".encode()
        )
        while b"\r\n\r\n" not in self.buffer:
            self.receive()
        head, _, rest = bytes(self.buffer).partition(b"\r\n\r\n")
        if not head.startswith(b"HTTP/1.1 101 "):
            raise Ended(f"handshake: {head[:80]!r}")
        self.buffer = bytearray(rest)
        fields = dict(line.lower().split(b": ", 1) for line in head.split(b"\r\n")[1:])
        self.extensions = fields.get(b"sec-websocket-extensions", b"").decode()
        if target:
            return
        established = json.loads(self.next()[1])
        self.socket_id = json.loads(established["data"])["socket_id"]

    def subscribe(self) -> None:
        signature = hmac.new(SECRET.encode(), f"{self.socket_id}:{CHANNEL}".encode(), hashlib.sha256).hexdigest()
        self.send(frame(TEXT, json.dumps({"event": "pusher:subscribe", "data": {"channel": CHANNEL, "auth": f"{KEY}:{signature}"}}).encode()))
        assert json.loads(self.next()[1])["event"] == "pusher_internal:subscription_succeeded"

    def send(self, data: bytes, chop: int | None = None) -> None:
        """Sends in pieces of `chop` bytes. A server that has closed already is no error: what it sent is read later."""
        try:
            for at in range(0, len(data), chop or len(data) or 1):
                self.socket.sendall(data[at:at + (chop or len(data))])
        except (BrokenPipeError, ConnectionResetError):
            pass

    def receive(self) -> None:
        try:
            piece = self.socket.recv(1 << 20)
        except TimeoutError:
            raise Ended(f"no answer in {self.socket.gettimeout()} s") from None
        except ConnectionResetError:
            piece = b""
        if not piece:
            self.closed = True
            raise Ended("end of the connection")
        self.buffer += piece

    def need(self, count: int) -> None:
        while len(self.buffer) < count:
            self.receive()

    def next(self) -> tuple[int, bytes]:
        """The next message or control frame of the server."""
        self.need(2)
        first, size = self.buffer[0], self.buffer[1]
        at = 2
        if size == 126:
            self.need(4)
            size, at = struct.unpack_from(">H", self.buffer, 2)[0], 4
        elif size == 127:
            self.need(10)
            size, at = struct.unpack_from(">Q", self.buffer, 2)[0], 10
        self.need(at + size)
        payload = bytes(self.buffer[at:at + size])
        del self.buffer[:at + size]
        opcode, compressed = first & 15, bool(first & 0x40)
        if compressed:
            assert opcode in (TEXT, BINARY) and self.extensions, "RSV1 without an extension"
            payload = zlib.decompressobj(-15).decompress(payload + TAIL)
        assert first & 0x80 and not first & 0x30, f"first byte {first:#x}"
        if opcode == CLOSE:
            self.close_code = struct.unpack(">H", payload[:2])[0] if payload else 0
            payload[2:].decode()
        return opcode, payload

    def quiet(self, seconds: float) -> bool:
        """Whether the server sends nothing for this time."""
        self.socket.settimeout(seconds)
        try:
            self.need(len(self.buffer) + 1)
            return False
        except Ended:
            return not self.closed
        finally:
            self.socket.settimeout(ANSWER_SECONDS)

    def end(self) -> None:
        """Reads until the server ends the connection."""
        try:
            self.socket.shutdown(socket.SHUT_WR)
        except OSError:
            pass
        try:
            while not self.closed:
                self.receive()
        except Ended:
            pass
        self.socket.close()
