"""Hearth itself, in each of its models."""

import os
import re
import subprocess
import time
from pathlib import Path

from harness.certificates import Certificate
from harness.machine import first_line
from harness.processes import Server

from . import App, Missing, Peer, Unavailable, ini_environment, php_fpm

WORKERS = int(os.environ.get("WORKERS", "2"))
FPM_WORKERS = int(os.environ.get("WORKERS", str(php_fpm.CHILDREN)))
"""The model `fpm` is compared with nginx and php-fpm: both have as many processes of PHP."""
# Name to letter, as in Bref's comparison.
MODELS = {"worker": "A", "spawn": "B", "prespawn": "C", "fork": "D", "fpm": "E", "builtin": "F", "request": "G", "cgi": "H",
          "snapshot": "S"}
WITH_SCRIPT = ("worker", "prespawn", "fork", "snapshot")
BOOTED_IN_ZYGOTE = ("fork", "snapshot")
PLAIN = ("echo", "transports", "ahead")
"""Applications without a framework: models that boot ahead run their script."""
PROCESS_PER_REQUEST = ("spawn", "prespawn", "fork", "cgi")


def program() -> Path:
    root = Path(__file__).resolve().parents[2]
    target = Path(os.environ.get("CARGO_TARGET_DIR", root / "target"))
    return Path(os.environ.get("HEARTH", target / "release" / "hearth")).resolve()


def find() -> list[Peer | Missing]:
    if not program().exists():
        return [Missing("hearth", f"{program()} is not built: make build")]
    version = first_line([str(program()), "--version"])
    return [Peer(_name(model), lambda app, work, certificate=None, model=model: start(_name(model), app, work, model, certificate=certificate), version,
                 slow=model in PROCESS_PER_REQUEST)
            for model in MODELS]


def _name(model: str) -> str:
    return f"hearth {model} ({_workers(model)})"


def _workers(model: str) -> int:
    return FPM_WORKERS if model == "fpm" else WORKERS


def start(name: str, app: App, work: Path, model: str, environment: dict[str, str] | None = None,
          certificate: Certificate | None = None) -> Server:
    """Starts `hearth serve` on a port of its choice and learns it from the ready line. Models that boot ahead run Hearth's own script for
    a framework, and for plain PHP the one that FrankenPHP runs too; those that boot in the zygote have answered the page before."""
    script = ["--worker-script", str(app.worker_script)] if model in WITH_SCRIPT and app.name in PLAIN else []
    settings = [str(app.folder), "--model", model, *script, "--workers", str(_workers(model))]
    environment = ini_environment(work) | (environment or {})
    if model in BOOTED_IN_ZYGOTE:
        environment["HEARTH_PHP_WARM_UP"] = app.path
    if certificate:
        settings += ["--tls-cert", str(certificate.signed), "--tls-key", str(certificate.key), "--http3"]
    must_not_be_another_model(model, settings, environment)
    server = Server(name, "", work / "output.log")
    server.run([str(program()), "serve", *settings, "--listen", "127.0.0.1:0", "--log-level", "warn", "--log-format", "text"], environment)
    deadline = time.monotonic() + 30
    while not (ready := re.search(r"hearth: ready on (https?://\S+)", server.log.read_text(errors="replace"))):
        if time.monotonic() > deadline or server.started[0].poll() is not None:
            output = server.log.read_text(errors="replace")[-1500:]
            server.stop()
            raise RuntimeError(f"{name} did not get ready:\n{output}")
        time.sleep(0.05)
    server.url = ready[1].rstrip("/") + app.path
    return server


def must_not_be_another_model(model: str, settings: list[str], environment: dict[str, str]) -> None:
    """A model that this build does not have is misuse (exit 2), and one that this machine does not allow is replaced by a slower one;
    a row must not carry another one's figures."""
    done = subprocess.run([str(program()), "check", *settings], capture_output=True, text=True, check=False, timeout=60,
                          env=os.environ | environment, errors="replace")
    said = done.stdout + done.stderr
    if done.returncode == 2:
        raise Unavailable(next(iter(said.strip().splitlines()), "refused").removeprefix("error: "))
    if replaced := re.search(rf"`(\w+)` runs in place of `{model}`: (.*)", said):
        raise Unavailable(f"`{replaced[1]}` would run in its place: {replaced[2]}")
