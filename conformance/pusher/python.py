"""Checks with pusher-http-python (PyPI), as it is published.

URL and APPS name the server, as for main.mjs.
"""

import base64
import json
from collections.abc import Callable

import pusher
from browser import APP, PATIENCE, URL, Client, fresh, run
from pusher.errors import PusherBadAuth, PusherBadRequest


def behind(**more: object) -> pusher.Pusher:
    return pusher.Pusher(**{"app_id": APP["id"], "key": APP["key"], "secret": APP["secret"], "host": URL.hostname, "port": URL.port,
                            "ssl": False, "timeout": PATIENCE, **more})


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


if __name__ == "__main__":
    run("pusher-http-python", CHECKS)
