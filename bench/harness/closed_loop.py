"""One worker process in a closed loop on one core (worker/loop.c): what a model costs without a server around it."""

import json
import os
import re
import subprocess
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from .processes import CORES

ROOT = Path(__file__).resolve().parents[2]
# Of the engine's statistics (native/sapi/models/snapshot_model.c), in this order; nanoseconds, medians.
PHASES = ("attributes", "gate", "scan", "copy", "all")


@dataclass(frozen=True)
class Run:
    """One run as loop.c reports it. Times in microseconds, memory in KB; `per_request` is the whole cycle, 1/throughput."""

    requests_per_second: float
    per_request: float
    p50: float
    p99: float
    cpu_per_request: float
    requests: int
    wrong: int
    ended: int
    pss: int
    extra: dict[str, int] | None
    each: list[dict]
    phases: dict[str, float]
    complaint: str
    taken: float | None = None  # milliseconds that snapshots took, median of all workers

    def as_dict(self) -> dict:
        return {name: value for name, value in vars(self).items() if value not in (None, [], {}, "")}


def target() -> Path:
    return Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")).resolve()


def build() -> Path:
    """Compiles the driver; raises CalledProcessError with the compiler's words on stderr."""
    program = target() / "bench" / "loop"
    program.parent.mkdir(parents=True, exist_ok=True)
    sources = [ROOT / "bench/worker/loop.c", ROOT / "native/wire/frame.c"]
    subprocess.run(["gcc", "-O2", "-std=gnu11", "-D_GNU_SOURCE", f"-I{ROOT / 'native'}", "-o", str(program), *map(str, sources)],
                   check=True)
    return program


def drive(driver: Path, options: list[str], command: list[str], folder: Path, environment: dict[str, str],
          seconds: float) -> Run:
    """Runs the driver over the worker program `command` with nothing in its environment that we did not put there: PHP imports
    it all into $_SERVER, in every request. Raises RuntimeError with the last words when there is no result."""
    kept = {name: value for name in ("PATH", "HOME", "LD_LIBRARY_PATH") if (value := os.environ.get(name))}
    try:
        done = subprocess.run([str(driver), "-c", str(CORES[-1]), *options, "--", *command], cwd=folder, text=True, errors="replace",
                              env=kept | environment | {"HEARTH_SNAPSHOT_STATISTICS": "1"}, capture_output=True, check=False,
                              timeout=seconds + 60)
    except subprocess.TimeoutExpired:
        raise RuntimeError("no result after a minute") from None
    words = [line for line in done.stderr.splitlines() if not line.startswith("snapshot: ")]
    if not done.stdout.startswith("{") or not done.stdout.endswith("}\n"):
        raise RuntimeError("; ".join(words[-2:]) or f"the driver ended with {done.returncode}")
    said = json.loads(done.stdout)
    return Run(
        requests_per_second=said["rps"],
        per_request=said["us"],
        p50=said["p50"],
        p99=said["p99"],
        cpu_per_request=said["cpu"],
        requests=said["requests"],
        wrong=said["bad"],
        ended=said["ended"],
        pss=said["pss_kb"],
        extra=said.get("extra"),
        each=said.get("each", []),
        phases=_phases(done.stderr),
        complaint=next((line for line in words if line.startswith("loop: ")), ""),
        taken=_taken(done.stderr),
    )


def _taken(stderr: str) -> float | None:
    times = [int(time) / 1000 for time in re.findall(r"taken in (\d+) us", stderr)]
    return median(times) if times else None


def _phases(stderr: str) -> dict[str, float]:
    """Microseconds by phase, of the worker that restored most: the others served a few requests to be weighed."""
    most, phases = 0, {}
    for line in re.findall(r"^snapshot: .*", stderr, re.MULTILINE):
        restores = int(re.search(r"(\d+) restores", line)[1])
        if restores > most:
            most = restores
            phases = {name: int(ns) / 1000 for name, ns in re.findall(r"(\w+) (\d+)(?=,|$)", line.partition("ns: ")[2])}
    return {name: phases[name] for name in PHASES if name in phases}
