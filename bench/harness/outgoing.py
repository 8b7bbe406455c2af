"""Where outgoing calls are measured: an origin, the distance to it, and brokers."""

import contextlib
import gzip
import json
import os
import shutil
import socket
import subprocess
import sys
from pathlib import Path

from . import certificates
from .closed_loop import target
from .processes import CORES

DISTANCE_MS = 19.5
# What the packages write to PHP's log where there is no broker (Hearth\Egress\Broker::gone).
DIRECTLY = "calls are made directly"
NGINX = """
{user}worker_processes 1; daemon off; pid {folder}/pid; error_log {folder}/error.log;
events {{ worker_connections 1024; }}
http {{ access_log off; default_type application/xml; gzip_static always;
  client_body_temp_path {folder}/b; proxy_temp_path {folder}/p; fastcgi_temp_path {folder}/f; uwsgi_temp_path {folder}/u; scgi_temp_path {folder}/s;
  server {{ listen 127.0.0.1:{port} ssl http2; ssl_protocols TLSv1.3; ssl_certificate {folder}/certificate.pem; ssl_certificate_key {folder}/key.pem;
    root {folder}; location / {{ rewrite ^ /feed break; }} }} }}
"""
ROOT = Path(__file__).resolve().parents[2]
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
    """The microseconds that a script of PHP prints as a JSON list. Raises RuntimeError with what it said if it fails, or if calls that were to go through the
    broker did not."""
    kept = {name: os.environ[name] for name in ("PATH", "HOME", "MATRIX_DIR") if name in os.environ}
    done = subprocess.run(["taskset", "--cpu-list", str(core), *command], env=kept | environment, capture_output=True, text=True, check=False, timeout=300)
    if done.returncode != 0 or DIRECTLY in done.stderr:
        raise RuntimeError(done.stderr.strip()[-500:] or f"PHP ended with {done.returncode}")
    return json.loads(done.stdout)


def php85() -> str:
    """A PHP with `curl_share_init_persistent()`. Raises RuntimeError: there is none, and why."""
    named = os.environ.get("PHP85") or shutil.which("php8.5") or str(ROOT / "bench/egress/php85")
    try:
        done = subprocess.run([named, "-r", "exit(function_exists('curl_share_init_persistent') ? 0 : 1);"], capture_output=True, text=True,
                              check=False, timeout=60)
    except OSError as error:
        raise RuntimeError(str(error)) from error
    if done.returncode != 0:
        raise RuntimeError(done.stderr.strip() or f"{named} has no curl_share_init_persistent()")
    return named


class Ground:
    """The origin, the distance and the broker, on the first core unless said otherwise. The origin at `near` speaks HTTP/2, the one at `http1` only HTTP/1.1."""

    def __init__(self, work: Path, stack: contextlib.ExitStack):
        self._stack, self.work = stack, work
        lines = self._start([str(program("SCRIPTED_ORIGIN", "scripted-origin")), "--folder", str(work)], 2)
        self.near = lines[1].replace("127.0.0.1", "localhost").rstrip("/")
        self.http1 = (work / "http1.url").read_text().strip().replace("127.0.0.1", "localhost").rstrip("/")
        self.authority = work / "authority.pem"
        self.bundle = work / "bundle.pem"
        self.bundle.write_text(BUNDLE.read_text() + self.authority.read_text() if BUNDLE.is_file() else self.authority.read_text())
        self._hearth = program("HEARTH", "hearth")
        self._brokers = 0

    def far(self, *options: str, of: str | None = None) -> str:
        """An address of the origin, or of another here, that is DISTANCE_MS away."""
        near = (of or self.near).rsplit(":", 1)[1]
        command = [str(program("DELAY_PROXY", "delay-proxy")), "--to", f"127.0.0.1:{near}", "--round-trip", str(DISTANCE_MS), *options]
        return "https://localhost:" + self._start(command, 1)[0].rsplit(":", 1)[1]

    def packed(self, size: int) -> str | None:
        """The address of an nginx, HTTP/2 over TLS 1.3, whose answers are text of `size` bytes packed by gzip; None: there is no nginx. Brokers that start later
        trust it, too. It is not far away."""
        nginx = shutil.which("nginx") or shutil.which("nginx", path="/usr/sbin")
        if not nginx:
            return None
        folder = self.work / "packed"
        folder.mkdir()
        folder.chmod(0o755)
        self.work.chmod(0o755)
        made = certificates.make(folder, "DNS:localhost")
        for trusted in (self.authority, self.bundle):
            trusted.write_text(trusted.read_text() + made.authority.read_text())
        words = "".join(f"<entry><title>The {n}th of many titles</title><id>{n * 7919:x}</id></entry>\n" for n in range(size // 40))
        # Packed ahead: what an origin takes for it is not what is measured.
        (folder / "feed.gz").write_bytes(gzip.compress(words[:size].encode()))
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        (folder / "nginx.conf").write_text(NGINX.format(folder=folder, port=port, user="user root; " if os.geteuid() == 0 else ""))
        self._start([nginx, "-p", str(folder), "-c", str(folder / "nginx.conf")], 0, until=folder / "pid")
        return f"https://localhost:{port}"

    def broker(self, core: int) -> Path:
        """A broker of its own, just started: nothing is warm. Returns its socket."""
        self._brokers += 1
        folder = self.work / f"broker-{self._brokers}"
        folder.mkdir()
        path = folder / "egress.sock"
        self._start([str(self._hearth), "egress", "--socket", str(path), "--ca", str(self.authority)], 0, core, path)
        return path

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
