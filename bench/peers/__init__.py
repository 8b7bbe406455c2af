"""The servers that benches compare. A peer that is not installed says why; it is never left out silently."""

import socket
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from harness.processes import Server


@dataclass(frozen=True)
class App:
    """One application, as every peer serves it."""

    name: str
    folder: Path
    path: str
    expected: str

    @property
    def public(self) -> Path:
        return self.folder / "public"

    @property
    def worker_script(self) -> Path:
        return self.public / "frankenphp-worker.php"


@dataclass(frozen=True)
class Peer:
    """One row of a table: a server in one of its ways to run PHP. `start(app, work)` gives it a folder for its files; a certificate
    as third argument makes it serve HTTPS."""

    name: str
    start: Callable[..., Server]
    note: str = ""
    expected: str | None = None  # its answer instead of the application's page
    slow: bool = False  # a process per request: short runs will do


@dataclass(frozen=True)
class Missing:
    """A peer that cannot run here, and what it would take."""

    name: str
    why: str


class Unavailable(RuntimeError):
    """Said by `start`: this peer cannot run here, which is no failure."""


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def ini_environment(work: Path) -> dict[str, str]:
    """The same PHP settings for every peer, on top of Debian's: what php.ini-production says, and a fixed opcache."""
    folder = work.parent / "ini"
    folder.mkdir(exist_ok=True)
    (folder / "zz-bench.ini").write_text("\n".join([
        "opcache.enable=1",
        "opcache.enable_cli=1",
        "opcache.validate_timestamps=0",
        "opcache.memory_consumption=128",
        "opcache.jit=disable",
        "memory_limit=128M",
        "output_buffering=4096",
        "variables_order=GPCS",
        "zend.assertions=-1",
        "display_errors=0",
        "realpath_cache_size=4096K",
        "realpath_cache_ttl=600",
        "",
    ]))
    return {"PHP_INI_SCAN_DIR": f":{folder}"}
