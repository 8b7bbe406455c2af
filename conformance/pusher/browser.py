"""A browser, as far as checks of server libraries need one (RFC 6455), and how such checks are told of: one JSON line each, {"check", "ok", "why"}.

URL and APPS name the server, as for main.mjs.
"""

import base64
import json
import os
import secrets
import socket
import struct
import time
from collections.abc import Callable
from urllib.parse import urlsplit

PATIENCE = float(os.environ.get("PATIENCE_MS", "10000")) / 1000
URL = urlsplit(os.environ["URL"])
APP = json.loads(os.environ["APPS"])["main"]


class Closed(Exception):
    """The server has closed, with this code."""

    def __init__(self, code: int | None):
        super().__init__(f"closed with {code}")
        self.code = code


class Client:
    """One connection."""

    def __init__(self) -> None:
        self._stream = socket.create_connection((URL.hostname, URL.port), PATIENCE)
        self._input = self._stream.makefile("rb")
        key = base64.b64encode(secrets.token_bytes(16)).decode()
        self._stream.sendall((f"GET /app/{APP['key']}?protocol=7&client=conformance HTTP/1.1\r\nHost: {URL.netloc}\r\nUpgrade: websocket\r\n"
                              f"Connection: Upgrade\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: {key}\r\n\r\n").encode())
        head = b""
        while not head.endswith(b"\r\n\r\n"):
            line = self._input.readline()
            if not line:
                raise ConnectionError("the upgrade was not answered")
            head += line
        assert b" 101 " in head.split(b"\r\n")[0], head
        self.socket_id = json.loads(self.next("pusher:connection_established")["data"])["socket_id"]

    def send(self, message: dict) -> None:
        payload = json.dumps(message).encode()
        mask = secrets.token_bytes(4)
        head = struct.pack("!BB", 0x81, 0x80 | len(payload)) if len(payload) < 126 else struct.pack("!BBH", 0x81, 0xFE, len(payload))
        self._stream.sendall(head + mask + bytes(byte ^ mask[i % 4] for i, byte in enumerate(payload)))

    def next(self, event: str) -> dict:
        """The next message of that name. Any other is an error if it refuses something, else passed over."""
        deadline = time.monotonic() + PATIENCE
        while time.monotonic() < deadline:
            head = self._input.read(2)
            if len(head) < 2:
                raise Closed(None)
            first, length = head
            if length == 126:
                (length,) = struct.unpack("!H", self._input.read(2))
            elif length == 127:
                (length,) = struct.unpack("!Q", self._input.read(8))
            payload = self._input.read(length)
            if first & 0x0F == 8:
                raise Closed(struct.unpack("!H", payload[:2])[0] if len(payload) >= 2 else None)
            if first & 0x0F != 1:
                continue
            message = json.loads(payload)
            if message["event"] == event:
                return message
            if message["event"] in ("pusher:error", "pusher:subscription_error"):
                raise AssertionError(f"{message} instead of {event}")
        raise TimeoutError(f"waited {PATIENCE} s for {event}")

    def subscribe(self, channel: str, more: dict | None = None) -> dict:
        self.send({"event": "pusher:subscribe", "data": {"channel": channel, **(more or {})}})
        return self.next("pusher_internal:subscription_succeeded")


def fresh(start: str = "channel") -> str:
    return f"{start}-{secrets.token_hex(6)}"


class Left(Exception):
    """A check that does not apply, and why."""


def run(library: str, checks: list[Callable[[], None]]) -> None:
    only = os.environ.get("ONLY", "")
    for function in checks:
        name = f"{library}: {function.__name__.replace('_', ' ')}"
        if only not in name:
            continue
        result = {"check": name, "ok": True}
        try:
            function()
        except Left as left:
            result = {"check": name, "skipped": str(left)}
        except Exception as error:  # noqa: BLE001  whatever a library throws is a finding
            result = {"check": name, "ok": False, "why": f"{type(error).__name__}: {error}"[:600]}
        print(json.dumps(result), flush=True)
