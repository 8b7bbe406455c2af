"""Channel servers under load: one fresh server for each run on its own core, the load generator or k6 on the other."""

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median

from peers import Missing
from peers.channels import APP, ChannelServer

from . import machine, raw, table
from .closed_loop import target
from .processes import LOAD_CORES, cpu_seconds

ROOT = Path(__file__).resolve().parents[2]
LONGEST = 300
# k6 needs minutes to set its clients up before the first one connects, if there are many.
LONGEST_OF_K6 = 400


def generator() -> Path:
    """The program of bench/loadgen."""
    path = Path(os.environ.get("LOADGEN") or target() / "release" / "loadgen")
    if not path.is_file():
        raise SystemExit(f"error: no {path} (hint: make bench builds it)")
    return path


def k6() -> str | None:
    return os.environ.get("K6") or shutil.which("k6")


@dataclass
class Scenario:
    """One kind of run, with the reports of each server by name."""

    title: str
    run: Callable[[ChannelServer], dict]
    runs: dict[str, list[dict]] = field(default_factory=dict)


def generated(*arguments: str) -> dict:
    """The load generator's report."""
    done = _on_the_other_core([str(generator()), "--app", ":".join(APP), *arguments])
    if done.returncode != 0:
        raise RuntimeError(done.stderr.strip()[-600:] or f"the generator ended with {done.returncode}")
    return json.loads(done.stdout)


def loaded(*arguments: str) -> Callable[[ChannelServer], dict]:
    """A run of the load generator with these arguments; its report."""

    def run(server: ChannelServer) -> dict:
        return _with(server, lambda address, pid: generated("--to", address, "--pid", str(pid), *arguments))

    return run


def with_k6(script: Path, **settings: object) -> Callable[[ChannelServer], dict]:
    """A run of k6 with a script; its summary's metrics, and what the server paid."""

    def run(server: ChannelServer) -> dict:
        def load(address: str, pid: int) -> dict:
            before = cpu_seconds([pid])
            with tempfile.NamedTemporaryFile(suffix=".json") as summary:
                given = {"ADDRESS": address, "APP_KEY": APP[1], "APP_SECRET": APP[2], **settings}
                pairs = [word for name, value in given.items() for word in ("--env", f"{name}={value}")]
                done = _on_the_other_core([k6(), "run", "--quiet", "--no-usage-report", "--summary-export", summary.name, *pairs, str(script)],
                                          os.sched_getaffinity(0), LONGEST_OF_K6)
                written = Path(summary.name).read_text()
            if not written:
                raise RuntimeError(done.stderr.strip()[-600:] or f"k6 ended with {done.returncode}")
            status = Path(f"/proc/{pid}/status").read_text()
            # A process that has ended has none.
            highest = next((int(line.split()[1]) * 1024 for line in status.splitlines() if line.startswith("VmHWM")), 0)
            return {"metrics": json.loads(written)["metrics"], "cpu_s": cpu_seconds([pid]) - before, "highest": highest}

        return _with(server, load)

    return run


def _on_the_other_core(command: list[str], cores: object = LOAD_CORES, longest: float = LONGEST) -> subprocess.CompletedProcess:
    pinned = ["taskset", "--cpu-list", ",".join(map(str, sorted(cores))), *command]
    return subprocess.run(pinned, capture_output=True, text=True, check=False, timeout=longest)


def _with(server: ChannelServer, load: Callable[[str, int], dict]) -> dict:
    with tempfile.TemporaryDirectory(prefix="hearth-bench-") as folder:
        started, address = server.start(Path(folder))
        try:
            report = load(address, started.main)
            ended = started.started[-1].poll()
        finally:
            started.stop()
        if ended is not None:
            raise RuntimeError(f"{server.name} ended with {ended} under load: {started.log.read_text(errors='replace')[-600:]}")
        return report


def measure(scenarios: list[Scenario], servers: list[ChannelServer], rounds: int, say: Callable[[str], None],
            account: Callable[[dict], str]) -> list[Missing]:
    """Every server in every scenario, in turns; what failed is left out of later rounds and said to be missing."""
    failed: dict[str, Missing] = {}
    for turn in range(rounds):
        for scenario in scenarios:
            for server in servers[turn % len(servers):] + servers[:turn % len(servers)]:
                what = f"{scenario.title}: {server.name}"
                if what in failed:
                    continue
                try:
                    report = scenario.run(server)
                except (RuntimeError, OSError, subprocess.TimeoutExpired) as error:
                    failed[what] = Missing(what, f"failed: {error}")
                    say(f"  {what}: FAILED: {error}")
                    continue
                scenario.runs.setdefault(server.name, []).append(report)
                say(f"  {what:70} round {turn + 1}  {account(report)}")
                # Sockets of the run before rest for a moment.
                time.sleep(0.5)
    return list(failed.values())


def value(reports: list[dict] | None, *path: str) -> float | None:
    """The median over the rounds of a number inside the reports; None where it was not measured."""
    numbers = []
    for report in reports or []:
        found = report
        for name in path:
            found = found.get(name) if isinstance(found, dict) else None
        if found is not None:
            numbers.append(found)
    return median(numbers) if numbers else None


def ratio(scenario: Scenario, other: str, *path: str) -> float | None:
    """How many times as much the first server has as `other`, within rounds."""
    ours, theirs = scenario.runs.get("Hearth", []), scenario.runs.get(other, [])
    pairs = [(value([a], *path), value([b], *path)) for a, b in zip(ours, theirs)]
    ratios = [a / b for a, b in pairs if a is not None and b]
    return median(ratios) if ratios else None


@dataclass(frozen=True)
class Aim:
    """What the project has set itself: a figure, and the same as a ratio to what AnyCable had on the machine where it was set. A slower machine makes both servers slower,
    so the ratio is the form that means the same everywhere."""

    what: str
    scenario: Scenario | None
    of: Callable[[dict], float | None]
    aim: float
    beside: float
    at_least: bool = False
    digits: int = 0

    def row(self) -> list[str]:
        sign = ">=" if self.at_least else "<="
        runs = self.scenario.runs if self.scenario else {}
        # Within rounds.
        pairs = [(self.of(ours), self.of(theirs)) for ours, theirs in zip(runs.get("Hearth", []), runs.get("AnyCable", []))]
        ratios = [ours / theirs for ours, theirs in pairs if ours is not None and theirs]
        ours, theirs = (median(found) if (found := [value for report in runs.get(name, []) if (value := self.of(report)) is not None]) else None
                        for name in ("Hearth", "AnyCable"))
        return [self.what, f"{sign} {self.aim:,.0f}", number(ours, self.digits), number(theirs, self.digits), f"{sign} {self.aim / self.beside:.2f} ×",
                f"{median(ratios):.2f} ×" if ratios else "–"]


def aims(rows: list[Aim]) -> str:
    return table.markdown(["aims", "aim", "Hearth", "AnyCable, same run", "aim as a ratio to AnyCable", "Hearth to AnyCable"], [row.row() for row in rows]) + (
        "\n\nThe figures in `aim` were set beside AnyCable's own on a faster machine; the ratio is of those two. Ratios are taken within a round.")


def at(*path: str, scale: float = 1.0) -> Callable[[dict], float | None]:
    return lambda report: None if (found := value([report], *path)) is None else found * scale


def clean(runs: list[dict], failed: Callable[[dict], float]) -> str:
    """In how many of the runs nothing failed."""
    return f"{sum(failed(report) == 0 for report in runs)} of {len(runs)}"


def write(name: str, head: list[str], tables: list[str], about: dict, scenarios: list[Scenario], missing: list[Missing]) -> Path:
    """Prints one document of results and writes it with its raw figures: bench/results/DATE-MACHINE/NAME.{md,json}. Returns the folder."""
    folder = ROOT / "bench/results" / f"{about['date']}-{machine.slug(about)}"
    folder.mkdir(parents=True, exist_ok=True)
    document = "\n\n".join([*head, *tables, *(f"Missing here: {one.name}: {one.why}." for one in missing)]) + "\n"
    (folder / f"{name}.md").write_text(document)
    raw.write(folder / f"{name}.json", {"machine": about, "reports": {one.title: one.runs for one in scenarios}, "missing": [vars(one) for one in missing]})
    print(document)
    print(f"written: {folder.relative_to(ROOT)}/{name}.md", file=sys.stderr, flush=True)
    return folder


def number(amount: float | None, digits: int = 0, unit: str = "") -> str:
    return "–" if amount is None else f"{amount:,.{digits}f}{unit}"
