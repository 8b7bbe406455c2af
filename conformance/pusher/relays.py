"""The same checks with each library that applications publish with and that is not Python's or Node's: Go, PHP, Ruby.

A relay (relays/) is the library behind lines of JSON: RELAY_COMMAND starts it, LIBRARY names it. URL, APPS and WEBHOOK_PORT are as for main.mjs.
"""

import base64
import contextlib
import http.server
import json
import os
import shlex
import subprocess
import threading
from collections.abc import Callable, Iterator
from queue import Empty, Queue

from browser import APP, PATIENCE, URL, Client, Left, fresh, run

KEY = base64.b64encode(bytes(range(32))).decode()
LIBRARY = os.environ["LIBRARY"]


class Refused(Exception):
    """The library has answered with an error."""


class Relay:
    """A library, with the application it publishes for."""

    def __init__(self, **more: str):
        app = {"ID": APP["id"], "Key": APP["key"], "Secret": APP["secret"], "Host": f"{URL.hostname}:{URL.port}", **more}
        self._process = subprocess.Popen(shlex.split(os.environ["RELAY_COMMAND"]), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
                                         env=os.environ | {"RELAY": json.dumps(app)})

    def ask(self, what: str, **command: object) -> dict:
        self._process.stdin.write(json.dumps({"Do": what, **command}) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        if not line:
            raise AssertionError(f"the relay has ended with {self._process.wait()}")
        answer = json.loads(line)
        if answer.get("unsupported"):
            raise Left(f"{LIBRARY} does not have it")
        if "error" in answer:
            raise Refused(answer["error"])
        return answer["result"] or {}

    def end(self) -> None:
        self._process.stdin.close()
        self._process.wait(10)


@contextlib.contextmanager
def sealing() -> Iterator[Relay]:
    """The library with a key for encrypted channels."""
    library = Relay(EncryptionKey=KEY)
    try:
        yield library
    finally:
        library.end()


relay = Relay()
CHECKS: list[Callable[[], None]] = []


def check(function: Callable[[], None]) -> Callable[[], None]:
    CHECKS.append(function)
    return function


def trigger(channels: str | list[str], event: str, data: object, **more: str) -> dict:
    return relay.ask("trigger", Channels=[channels] if isinstance(channels, str) else channels, Event=event, Data=data, **more)


def signed_in() -> tuple[Client, str]:
    client, user = Client(), fresh("user")
    client.send({"event": "pusher:signin", "data": relay.ask("sign in", SocketID=client.socket_id, User=user)})
    client.next("pusher:signin_success")
    return client, user


@check
def triggers_an_event() -> None:
    client, channel = Client(), fresh()
    client.subscribe(channel)
    trigger(channel, "news", {"text": "é 🔥 <&>"})
    assert json.loads(client.next("news")["data"]) == {"text": "é 🔥 <&>"}


@check
def triggers_a_text_as_it_is() -> None:
    client, channel = Client(), fresh()
    client.subscribe(channel)
    trigger(channel, "news", "plain")
    assert client.next("news")["data"] in ("plain", '"plain"')


@check
def triggers_on_many_channels_and_leaves_a_socket_out() -> None:
    one, two, channels = Client(), Client(), [fresh() for _ in range(10)]
    for channel in channels:
        one.subscribe(channel)
        two.subscribe(channel)
    trigger(channels, "news", "x", SocketID=one.socket_id)
    trigger(channels[0], "last", "y")
    assert sorted(two.next("news")["channel"] for _ in channels) == sorted(channels)
    one.send({"event": "pusher:ping", "data": {}})
    assert one.next("last")["channel"] == channels[0]


@check
def is_told_of_the_channels_it_triggered_on() -> None:
    client, channel = Client(), fresh("presence")
    auth = relay.ask("authorize", Channel=channel, SocketID=client.socket_id, User="ada", UserInfo={"name": "Ada"})
    client.subscribe(channel, auth)
    told = trigger(channel, "news", "x", Info="user_count,subscription_count")["channels"][channel]
    assert (told["user_count"], told["subscription_count"]) == (1, 1), told


@check
def triggers_a_batch() -> None:
    client, channel = Client(), fresh()
    client.subscribe(channel)
    relay.ask("batch", Batch=[{"Channel": channel, "Name": name, "Data": {"n": name}} for name in ("a", "b")])
    assert json.loads(client.next("a")["data"]) == {"n": "a"}
    assert json.loads(client.next("b")["data"]) == {"n": "b"}


@check
def signs_private_channels() -> None:
    client, channel = Client(), fresh("private")
    client.subscribe(channel, relay.ask("authorize", Channel=channel, SocketID=client.socket_id))


@check
def signs_presence_channels_and_asks_who_is_there() -> None:
    client, channel = Client(), fresh("presence")
    auth = relay.ask("authorize", Channel=channel, SocketID=client.socket_id, User="ada", UserInfo={"name": "Ada"})
    presence = json.loads(client.subscribe(channel, auth)["data"])["presence"]
    assert presence == {"count": 1, "ids": ["ada"], "hash": {"ada": {"name": "Ada"}}}, presence
    users = relay.ask("users", Channel=channel)
    assert [str(user.get("id") or user.get("ID")) for user in found(users, "users")] == ["ada"], users
    info = relay.ask("channel", Channel=channel, Info="user_count,subscription_count")
    assert (info.get("user_count") or found(info, "UserCount"), info.get("subscription_count") or found(info, "SubscriptionCount")) == (1, 1), info
    channels = found(relay.ask("channels", Prefix="presence-", Info="user_count"), "channels")
    assert channel in channels and list(channels[channel].values())[0] == 1, channels


def found(value: dict, name: str) -> object:
    """A field, however the library spells it."""
    return next(field for key, field in value.items() if key.lower() == name.lower())


@check
def signs_encrypted_channels_and_seals_events() -> None:
    from nacl.secret import SecretBox
    with sealing() as library:
        client, channel = Client(), fresh("private-encrypted")
        auth = library.ask("authorize", Channel=channel, SocketID=client.socket_id)
        client.subscribe(channel, {"auth": auth["auth"]})
        library.ask("trigger", Channels=[channel], Event="secret", Data={"text": "sealed"})
        sealed = json.loads(client.next("secret")["data"])
        box = SecretBox(base64.b64decode(auth["shared_secret"]))
        assert json.loads(box.decrypt(base64.b64decode(sealed["ciphertext"]), base64.b64decode(sealed["nonce"]))) == {"text": "sealed"}


@check
def signs_users_in_and_sends_to_them() -> None:
    client, user = signed_in()
    relay.ask("send to user", User=user, Event="for-you", Data={"n": 1})
    assert json.loads(client.next("for-you")["data"]) == {"n": 1}


@check
def signs_users_in_and_sends_to_their_channel() -> None:
    client, user = signed_in()
    try:
        trigger(f"#server-to-user-{user}", "for-you", {"n": 1})
    except Refused as refused:
        if "invalid" not in str(refused):
            raise
        raise Left(f"{LIBRARY} sends to users by a call of its own only") from None
    assert json.loads(client.next("for-you")["data"]) == {"n": 1}


@check
def ends_a_users_connections() -> None:
    from browser import Closed
    client, user = signed_in()
    relay.ask("terminate", User=user)
    try:
        client.next("never")
    except Closed as closed:
        assert closed.code == 4009, closed
        return
    raise AssertionError("it stayed open")


@check
def reads_webhooks_and_refuses_forged_ones() -> None:
    # pusher-http-go reads no webhook without a key, pusher-php-server none of encrypted channels.
    with sealing() as library, webhooks() as arrived:
        headers, body, channel = about_a_new_channel(arrived)
        events = found(library.ask("webhook", Headers=headers, Body=body), "events")
        assert any((found(event, "channel"), found(event, "name")) == (channel, "channel_occupied") for event in events), events
        try:
            library.ask("webhook", Headers=headers, Body=body.replace("channel_occupied", "channel_vacated"))
        except Refused:
            return
        raise AssertionError("a forged webhook was taken")


def about_a_new_channel(arrived: Queue) -> tuple[dict, str, str]:
    """A webhook and the channel it tells of, with none of the encrypted channels of other checks in it, whose keys these are not."""
    for _ in range(5):
        client, channel, body = Client(), fresh(), ""
        client.subscribe(channel)
        while channel not in body:
            try:
                headers, body = arrived.get(timeout=PATIENCE)
            except Empty:
                raise AssertionError("no webhook for the channel came") from None
        if "private-encrypted-" not in body:
            return headers, body, channel
    raise AssertionError("every webhook told of encrypted channels, too")


@contextlib.contextmanager
def webhooks() -> Iterator[Queue]:
    if "WEBHOOK_PORT" not in os.environ:
        raise Left("this server sends webhooks elsewhere")
    arrived: Queue = Queue()

    class Receiver(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:  # noqa: N802  http.server's name
            body = self.rfile.read(int(self.headers["Content-Length"])).decode()
            self.send_response(200)
            self.send_header("Content-Length", "0")
            self.end_headers()
            arrived.put(({name: value for name, value in self.headers.items() if name.lower().startswith("x-pusher")}, body))

        def log_message(self, *_: object) -> None:
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", int(os.environ["WEBHOOK_PORT"])), Receiver)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield arrived
    finally:
        server.shutdown()
        server.server_close()


@check
def is_told_of_a_wrong_secret() -> None:
    try:
        trigger(fresh(), "news", "x", Secret="guess")
    except Refused as refused:
        assert any(sign in str(refused).lower() for sign in ("401", "signature", "auth")), refused
        return
    raise AssertionError("it was taken")


@check
def is_told_of_a_bad_request() -> None:
    try:
        relay.ask("channels", Prefix="private-", Info="user_count")
    except Refused:
        return
    raise AssertionError("it was taken")


if __name__ == "__main__":
    run(LIBRARY, CHECKS)
    relay.end()
