"""Load from wrk on the other core, and what the server paid for it."""

import json
import os
import re
import subprocess
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

from .closed_loop import target
from .processes import LOAD_CORES, Server, cpu_seconds

REPORT = Path(__file__).with_name("report.lua")


@dataclass(frozen=True)
class Sample:
    """One run. Times in microseconds."""

    requests_per_second: float
    p50: float
    p99: float
    cpu_per_request: float
    errors: int

    def as_dict(self) -> dict:
        return asdict(self)


def warm_up(server: Server, seconds: float) -> None:
    _wrk(server.url, 16, seconds)


def measure(server: Server, connections: int, seconds: float, *options: str, body: int = 0) -> Sample:
    """One run of wrk with further `options`. `body`: POST that many bytes."""
    return _sample(server, lambda: _wrk(server.url, connections, seconds, *options, body=body))


def measure_http2(server: Server, connections: int, streams: int, seconds: float) -> Sample:
    """One run of h2load with this number of connections, and of streams on each at a time."""
    return _sample(server, lambda: _h2load(server.url, connections, streams, seconds))


def measure_http3(server: Server, connections: int, streams: int, seconds: float) -> Sample:
    """One run of http3-load of bench/loadgen with this number of connections, and of requests on each at a time."""
    return _sample(server, lambda: _http3_load(server.url, connections, streams, seconds))


def _sample(server: Server, load: Callable[[], dict]) -> Sample:
    before = cpu_seconds(server.roots)
    summary = load()
    cpu = cpu_seconds(server.roots) - before
    done = max(1, summary["requests"])
    return Sample(
        requests_per_second=summary["requests"] / (summary["duration"] / 1e6),
        p50=summary["p50"],
        p99=summary["p99"],
        cpu_per_request=cpu * 1e6 / done,
        errors=summary["errors"],
    )


def settle(server: Server, seconds: float = 3) -> None:
    """Waits until the server has nothing more to do: what it owes to the last run must not cost the next peer. Given up after
    `seconds`."""
    deadline, before = time.monotonic() + seconds, cpu_seconds(server.roots)
    while time.monotonic() < deadline:
        time.sleep(0.1)
        now = cpu_seconds(server.roots)
        if now - before < 0.02:
            return
        before = now


def _wrk(url: str, connections: int, seconds: float, *options: str, body: int = 0) -> dict:
    began = time.monotonic()
    # wrk counts whole seconds only.
    command = ["taskset", "--cpu-list", ",".join(map(str, LOAD_CORES)), "wrk", "--threads", "1",
               "--connections", str(connections), "--duration", f"{max(1, round(seconds))}s", "--timeout", "10s",
               "--script", str(REPORT), *options, url, *(["--", str(body)] if body else [])]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=seconds + 30)
    for line in done.stdout.splitlines():
        if line.startswith("{"):
            return json.loads(line)
    raise RuntimeError(f"wrk failed after {time.monotonic() - began:.1f} s: {done.stdout}{done.stderr}")


def http3_load() -> Path:
    """The program of bench/loadgen; built if it is not there, so that no bench leaves its rows of HTTP/3 out."""
    if named := os.environ.get("HTTP3_LOAD"):
        return Path(named)
    program = target() / "release" / "http3-load"
    if not program.exists():
        subprocess.run(["cargo", "build", "--locked", "--release", "--package", "loadgen", "--bin", "http3-load"], check=True,
                       cwd=Path(__file__).parents[2])
    return program


def _http3_load(url: str, connections: int, streams: int, seconds: float) -> dict:
    program = http3_load()
    command = ["taskset", "--cpu-list", ",".join(map(str, LOAD_CORES)), str(program), "--connections", str(connections),
               "--streams", str(streams), "--seconds", str(seconds), url]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=seconds + 60)
    summary = json.loads(done.stdout) if done.returncode == 0 else {}
    if not summary.get("requests"):
        raise RuntimeError(f"http3-load failed: {done.stdout}{done.stderr}")
    return summary


def _h2load(url: str, connections: int, streams: int, seconds: float) -> dict:
    with tempfile.NamedTemporaryFile() as log:
        command = ["taskset", "--cpu-list", ",".join(map(str, LOAD_CORES)), "h2load", "--threads=1", f"--clients={connections}",
                   f"--max-concurrent-streams={streams}", f"--duration={max(1, round(seconds))}", f"--log-file={log.name}", url]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=seconds + 30)
        # Each line: start, status, duration in microseconds.
        lines = [line.split() for line in Path(log.name).read_text().splitlines()]
    times = sorted(int(line[2]) for line in lines if line[1] == "200")
    took = re.search(r"finished in ([0-9.]+)(ms|s)", done.stdout)
    if not times or not took:
        raise RuntimeError(f"h2load failed: {done.stdout}{done.stderr}")
    return {"requests": len(times), "duration": float(took[1]) * (1e6 if took[2] == "s" else 1e3), "p50": times[len(times) // 2],
            "p99": times[len(times) * 99 // 100], "errors": len(lines) - len(times)}
