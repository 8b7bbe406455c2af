"""Where outgoing calls are measured: an origin, the distance to it, and brokers."""

import contextlib
import json
import os
import subprocess
import sys
from pathlib import Path

from .closed_loop import target
from .processes import CORES

DISTANCE_MS = 19.5
BUNDLE = Path("/etc/ssl/certs/ca-certificates.crt")


def program(variable: str, name: str) -> Path:
    path = Path(os.environ.get(variable) or target() / "release" / name)
    if not path.is_file():
        sys.exit(f"error: no {path} (hint: make bench builds it)")
    return path


def extension() -> Path:
    """Where hearth.so for the PHP on the PATH is, if it is there."""
    minor = subprocess.run(["php", "-r", "echo PHP_MAJOR_VERSION.'.'.PHP_MINOR_VERSION;"], capture_output=True, text=True, check=True).stdout
    return Path(os.environ.get("EXTENSION") or target() / "release" / f"hearth-{minor}.so")


def times_of(command: list[str], environment: dict[str, str], core: int = CORES[-1]) -> list[int]:
    """The microseconds that a script of PHP prints as a JSON list. Raises RuntimeError with what it said if it fails."""
    kept = {name: os.environ[name] for name in ("PATH", "HOME", "MATRIX_DIR") if name in os.environ}
    done = subprocess.run(["taskset", "--cpu-list", str(core), *command], env=kept | environment, capture_output=True, text=True, check=False, timeout=300)
    if done.returncode != 0:
        raise RuntimeError(done.stderr.strip()[-500:] or f"PHP ended with {done.returncode}")
    return json.loads(done.stdout)


class Ground:
    """The origin, the distance and the broker, on the first core unless said otherwise."""

    def __init__(self, work: Path, stack: contextlib.ExitStack):
        self._stack, self.work = stack, work
        lines = self._start([str(program("SCRIPTED_ORIGIN", "scripted-origin")), "--folder", str(work)], 2)
        self.near = lines[1].replace("127.0.0.1", "localhost").rstrip("/")
        self.authority = work / "authority.pem"
        self.bundle = work / "bundle.pem"
        self.bundle.write_text(BUNDLE.read_text() + self.authority.read_text() if BUNDLE.is_file() else self.authority.read_text())
        self._hearth = program("HEARTH", "hearth")
        self._brokers = 0

    def far(self, *options: str) -> str:
        """An address of the same origin that is DISTANCE_MS away."""
        near = self.near.rsplit(":", 1)[1]
        command = [str(program("DELAY_PROXY", "delay-proxy")), "--to", f"127.0.0.1:{near}", "--round-trip", str(DISTANCE_MS), *options]
        return "https://localhost:" + self._start(command, 1)[0].rsplit(":", 1)[1]

    def broker(self, core: int) -> Path:
        """A broker of its own, just started: nothing is warm. Returns its socket."""
        self._brokers += 1
        folder = self.work / f"broker-{self._brokers}"
        folder.mkdir()
        socket = folder / "egress.sock"
        self._start([str(self._hearth), "egress", "--socket", str(socket), "--ca", str(self.authority)], 0, core, socket)
        return socket

    def _start(self, command: list[str], lines: int, core: int = CORES[0], until: Path | None = None) -> list[str]:
        log = (self.work / "programs.log").open("ab")
        process = subprocess.Popen(["taskset", "--cpu-list", str(core), *command], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                   stderr=log, text=True)
        self._stack.callback(_end, process)
        read = [process.stdout.readline().strip() for _ in range(lines)]
        for _ in range(200):
            if until is None or until.exists():
                break
            subprocess.run(["sleep", "0.05"], check=True)
        if not all(read) or process.poll() is not None:
            sys.exit(f"error: {command[0]} does not start; its log:\n" + (self.work / "programs.log").read_text()[-2000:])
        return read


def _end(process: subprocess.Popen) -> None:
    process.terminate()
    try:
        process.wait(10)
    except subprocess.TimeoutExpired:
        process.kill()
        print(f"  {process.args[3]} had to be killed", file=sys.stderr, flush=True)
