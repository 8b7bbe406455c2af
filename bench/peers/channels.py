"""The Pusher servers that `realtime` and `avalanche` compare, each with one application: Hearth, AnyCable, Laravel Reverb.

HEARTH=, ANYCABLE= name programs that are not where they are looked for, REVERB= a Laravel application with laravel/reverb in it.
"""

import json
import os
import re
import resource
import shutil
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from harness.machine import first_line
from harness.processes import Server

from . import Missing, free_port
from .hearth import program

APP = ("1", "key", "secret")
# As in AnyCable's own comparison: the limits of one process, within this machine's limits.
FILES = 65535


@dataclass(frozen=True)
class ChannelServer:
    """One column of a table. `start(folder)` gives the server and its address."""

    name: str
    start: Callable[[Path], tuple[Server, str]]
    version: str


def find() -> tuple[list[ChannelServer], list[Missing]]:
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    files = FILES if most == resource.RLIM_INFINITY else min(FILES, most)
    # Programs started here inherit it.
    resource.setrlimit(resource.RLIMIT_NOFILE, (files, most))
    found, missing = [], []
    for one in (_hearth(), _anycable(), _reverb()):
        (found if isinstance(one, ChannelServer) else missing).append(one)
    return found, missing


def _hearth() -> ChannelServer | Missing:
    if not program().exists():
        return Missing("Hearth", f"{program()} is not built: make build")
    return ChannelServer("Hearth", start_hearth, first_line([str(program()), "--version"]))


def start_hearth(folder: Path, before: list[str] | None = None) -> tuple[Server, str]:
    """`hearth channels` and its address. `before`: lines of hearth.toml above those of the application."""
    identity, key, secret = APP
    # Ten client events a second for each connection is Pusher's limit; no peer has one, and senders here are few.
    settings = {"key": key, "secret": secret, "client_event_rate": 1_000_000}
    lines = [*(before or []), f'[realtime.apps."{identity}"]', *(f"{name} = {json.dumps(value)}" for name, value in settings.items())]
    (folder / "hearth.toml").write_text("\n".join(lines) + "\n")
    server = Server("Hearth", "", folder / "output.log")
    server.run([str(program()), "channels", "--config", str(folder / "hearth.toml"), "--listen", "127.0.0.1:0", "--log-level", "warn", "--log-format", "text"])
    deadline = time.monotonic() + 30
    while not (ready := re.search(r"hearth: ready on http://(\S+)", server.log.read_text(errors="replace"))):
        _still_starting(server, deadline)
    return server, ready[1].rstrip("/")


def _anycable() -> ChannelServer | Missing:
    binary = os.environ.get("ANYCABLE") or shutil.which("anycable") or shutil.which("anycable-go")
    if not binary:
        return Missing("AnyCable", "no `anycable` on the PATH; ANYCABLE=path names one "
                                   "(`go install github.com/anycable/anycable/cmd/anycable@latest`)")

    def start(folder: Path) -> tuple[Server, str]:
        identity, key, secret = APP
        port = free_port()
        server = Server("AnyCable", "", folder / "output.log")
        server.run([binary, "--host=127.0.0.1", f"--port={port}", f"--pusher_app_id={identity}", f"--pusher_app_key={key}",
                    f"--pusher_secret={secret}", "--log_level=warn",
                    # By default it wants a Redis besides, and ends after two minutes without one.
                    "--broadcast_adapter=http", f"--http_broadcast_port={port}"])
        return _once_it_listens(server, port)

    return ChannelServer("AnyCable", start, first_line([binary, "--version"]))


def _reverb() -> ChannelServer | Missing:
    application = os.environ.get("REVERB")
    if not application:
        return Missing("Laravel Reverb", "REVERB=folder names a Laravel application that requires laravel/reverb; it comes from Packagist, "
                                         "which this bench does not ask")

    def start(folder: Path) -> tuple[Server, str]:
        identity, key, secret = APP
        port = free_port()
        server = Server("Reverb", "", folder / "output.log")
        settings = {"REVERB_APP_ID": identity, "REVERB_APP_KEY": key, "REVERB_APP_SECRET": secret}
        server.run(["php", "artisan", "reverb:start", "--host=127.0.0.1", f"--port={port}"], settings, Path(application))
        return _once_it_listens(server, port)

    return ChannelServer("Reverb", start, first_line(["php", "-v"]))


def _once_it_listens(server: Server, port: int) -> tuple[Server, str]:
    deadline = time.monotonic() + 30
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
            return server, f"127.0.0.1:{port}"
        except OSError:
            _still_starting(server, deadline)


def _still_starting(server: Server, deadline: float) -> None:
    if time.monotonic() > deadline or server.started[0].poll() is not None:
        output = server.log.read_text(errors="replace")[-1500:]
        server.stop()
        raise RuntimeError(f"{server.name} did not get ready:\n{output}")
    time.sleep(0.05)
