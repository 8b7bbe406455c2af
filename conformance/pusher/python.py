"""Checks with pusher-http-python (PyPI), as it is published. Each prints one JSON line, like main.mjs: {"check", "ok", "why"}.

URL and APPS name the server, as for main.mjs.
"""

import base64
import json
import os
import secrets
import socket
import struct
import sys
import time
from collections.abc import Callable
from urllib.parse import urlsplit

import pusher
from pusher.errors import PusherBadAuth, PusherBadRequest

PATIENCE = float(os.environ.get("PATIENCE_MS", "10000")) / 1000
URL = urlsplit(os.environ["URL"])
APP = json.loads(os.environ["APPS"])["main"]


class Closed(Exception):
    """The server has closed, with this code."""

    def __init__(self, code: int | None):
        super().__init__(f"closed with {code}")
        self.code = code


class Client:
    """A browser, as far as these checks need one (RFC 6455)."""

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


def behind(**more: object) -> pusher.Pusher:
    return pusher.Pusher(**{"app_id": APP["id"], "key": APP["key"], "secret": APP["secret"], "host": URL.hostname, "port": URL.port,
                            "ssl": False, "timeout": PATIENCE, **more})


def fresh(start: str = "channel") -> str:
    return f"{start}-{secrets.token_hex(6)}"


CHECKS: list[Callable[[], None]] = []


def check(function: Callable[[], None]) -> Callable[[], None]:
    CHECKS.append(function)
    return function


@check
def triggers_an_event() -> None:
    client, channel = Client(), fresh()
    client.subscribe(channel)
    assert behind().trigger(channel, "news", {"text": "é 🔥"}) == {}
    assert json.loads(client.next("news")["data"]) == {"text": "é 🔥"}


@check
def triggers_on_many_channels_and_leaves_a_socket_out() -> None:
    one, two, channels = Client(), Client(), [fresh(), fresh()]
    for channel in channels:
        one.subscribe(channel)
        two.subscribe(channel)
    behind().trigger(channels, "news", "x", one.socket_id)
    behind().trigger(channels, "last", "y")
    assert [two.next("news")["channel"] for _ in channels] == channels
    one.send({"event": "pusher:ping", "data": {}})
    assert one.next("last")["channel"] == channels[0]


@check
def triggers_a_batch() -> None:
    client, channel = Client(), fresh()
    client.subscribe(channel)
    behind().trigger_batch([{"channel": channel, "name": name, "data": {"n": name}} for name in ("a", "b")])
    assert json.loads(client.next("a")["data"]) == {"n": "a"}
    assert json.loads(client.next("b")["data"]) == {"n": "b"}


@check
def signs_private_channels() -> None:
    client, channel = Client(), fresh("private")
    client.subscribe(channel, behind().authenticate(channel, client.socket_id))


@check
def signs_presence_channels_and_asks_who_is_there() -> None:
    client, channel = Client(), fresh("presence")
    auth = behind().authenticate(channel, client.socket_id, {"user_id": "ada", "user_info": {"name": "Ada"}})
    presence = json.loads(client.subscribe(channel, auth)["data"])["presence"]
    assert presence == {"count": 1, "ids": ["ada"], "hash": {"ada": {"name": "Ada"}}}, presence
    assert behind().users_info(channel) == {"users": [{"id": "ada"}]}
    info = behind().channel_info(channel, ["user_count", "subscription_count"])
    assert info == {"occupied": True, "user_count": 1, "subscription_count": 1}, info
    channels = behind().channels_info("presence-", ["user_count"])["channels"]
    assert channels[channel] == {"user_count": 1}, channels


@check
def signs_encrypted_channels_and_seals_events() -> None:
    key = base64.b64encode(bytes(range(32))).decode()
    sealing, client, channel = behind(encryption_master_key_base64=key), Client(), fresh("private-encrypted")
    auth = sealing.authenticate(channel, client.socket_id)
    client.subscribe(channel, {"auth": auth["auth"]})
    sealing.trigger(channel, "secret", {"text": "sealed"})
    sealed = json.loads(client.next("secret")["data"])
    from nacl.secret import SecretBox
    box = SecretBox(base64.b64decode(auth["shared_secret"]))
    assert json.loads(box.decrypt(base64.b64decode(sealed["ciphertext"]), base64.b64decode(sealed["nonce"]))) == {"text": "sealed"}


@check
def signs_users_in_and_sends_to_them() -> None:
    # Its terminate_user_connections() of 3.3.4 posts to /users/ID and not to /apps/ID/users/ID, which Pusher does not have either.
    client, user = Client(), fresh("user")
    signed = behind().authenticate_user(client.socket_id, {"id": user})
    client.send({"event": "pusher:signin", "data": signed})
    client.next("pusher:signin_success")
    channel = f"#server-to-user-{user}"
    client.send({"event": "pusher:subscribe", "data": {"channel": channel}})
    client.send({"event": "pusher:ping", "data": {}})
    client.next("pusher:pong")
    behind().send_to_user(user, "for-you", {"n": 1})
    assert json.loads(client.next("for-you")["data"]) == {"n": 1}


@check
def is_told_of_a_wrong_secret() -> None:
    try:
        behind(secret="guess").trigger(fresh(), "news", "x")
    except PusherBadAuth:
        return
    raise AssertionError("it was taken")


@check
def is_told_of_a_bad_request() -> None:
    try:
        behind().channels_info("private-", ["user_count"])
    except (PusherBadRequest, ValueError):
        return
    raise AssertionError("it was taken")


def main() -> None:
    only = os.environ.get("ONLY", "")
    for function in CHECKS:
        name = f"pusher-http-python: {function.__name__.replace('_', ' ')}"
        if only not in name:
            continue
        result = {"check": name, "ok": True}
        try:
            function()
        except Exception as error:  # noqa: BLE001  whatever a library throws is a finding
            result = {"check": name, "ok": False, "why": f"{type(error).__name__}: {error}"[:600]}
        print(json.dumps(result), flush=True)


if __name__ == "__main__":
    sys.exit(main())
