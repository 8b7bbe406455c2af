"""Hearth itself, in each model that takes over a whole application."""

import os
import re
import time
from pathlib import Path

from harness.machine import first_line
from harness.processes import Server

from . import App, Missing, Peer, ini_environment

WORKERS = int(os.environ.get("WORKERS", "2"))
MODELS = ("request", "worker")


def program() -> Path:
    root = Path(__file__).resolve().parents[2]
    target = Path(os.environ.get("CARGO_TARGET_DIR", root / "target"))
    return Path(os.environ.get("HEARTH", target / "release" / "hearth")).resolve()


def find() -> list[Peer | Missing]:
    if not program().exists():
        return [Missing("hearth", f"{program()} is not built: make build")]
    version = first_line([str(program()), "--version"])
    return [Peer(_name(model), lambda app, work, model=model: start(_name(model), app, work, ["--model", model]), version)
            for model in MODELS]


def _name(model: str) -> str:
    return f"hearth {model} ({WORKERS})"


def start(name: str, app: App, work: Path, flags: list[str], environment: dict[str, str] | None = None) -> Server:
    """Starts `hearth serve` on a port of its choice and learns it from the ready line."""
    server = Server(name, "", work / "output.log")
    path = app.worker_script if "worker" in flags else app.folder
    server.run([str(program()), "serve", str(path), "--listen", "127.0.0.1:0", "--workers", str(WORKERS),
                "--log-level", "warn", *flags], ini_environment(work) | (environment or {}))
    deadline = time.monotonic() + 30
    while not (ready := re.search(r"hearth: ready on (http://\S+)", server.log.read_text(errors="replace"))):
        if time.monotonic() > deadline or server.started[0].poll() is not None:
            output = server.log.read_text(errors="replace")[-1500:]
            server.stop()
            raise RuntimeError(f"{name} did not get ready:\n{output}")
        time.sleep(0.05)
    server.url = ready[1].rstrip("/") + app.path
    return server
