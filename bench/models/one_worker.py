"""Table 1: one worker process in a closed loop on one core, in the six models of the worker program, without a server.

Besides the one page that all tables ask for: four pages in turn, a mixed load, an idle worker, and what memory another worker takes.
The ratios between models are taken within a round, where the machine was the same for both; the tables show medians over rounds.
"""

import json
import subprocess
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median

from harness import closed_loop, table
from harness.closed_loop import PHASES, Run
from harness.machine import first_line
from peers import App, Missing, hearth, ini_environment
from published import DESIGN

ROOT = Path(__file__).resolve().parents[2]
MODELS = ("worker", "spawn", "prespawn", "fork", "request", "snapshot")
ONE_SHOT = ("spawn", "prespawn", "fork")
WITH_SCRIPT = ("worker", "prespawn", "fork", "snapshot")
# Without these two no question about the rest makes sense: they run in every scenario.
COMPARED = ("worker", "snapshot")
# Hearth's own loops; a plain application brings its worker script itself.
LOOPS = {name: ROOT / f"crates/server/src/app/workers/{name}.php" for name in ("symfony", "laravel")}
INI = ("variables_order=GPCS", "opcache.validate_timestamps=0")
IDLE_MICROSECONDS = 1500
EXTRA_WORKERS = 8


@dataclass(frozen=True)
class Scenario:
    """What is asked of a worker. `pages` as loop.c reads them; the plain application has no pages but one."""

    name: str
    title: str
    models: tuple[str, ...]
    pages: dict[str, tuple[str, ...]]
    options: tuple[str, ...] = ()


FOUR = {
    "symfony": ("/hello", "/json", "/items/2", "/"),
    "laravel": ("/hello", "/json", "/hello?page=2", "/json?page=2"),
}
# With errors, bodies, and in Laravel pages with a session and SQLite. Its connection stays open in `worker`; in `snapshot` each
# request opens its own.
MIXED = {
    "symfony": ("/hello", "/hello", "/hello", "/json", "/json", "/json", "/items/1", "/items/3?details=1", "/", "404 /items/9",
                '201 POST /items application/json {"name":"bellows"}', '422 POST /items application/json {"name":""}'),
    "laravel": ("/hello", "/hello", "/hello", "/json", "/json", "/json", "/", "/messages?after=0", "404 /nothing"),
}
SCENARIOS = (
    Scenario("page", "one page", MODELS, {}),
    Scenario("four", "four pages in turn", COMPARED, FOUR),
    Scenario("mixed", "mixed load", COMPARED, MIXED, ("-r", "-k")),
    Scenario("idle", f"{IDLE_MICROSECONDS / 1000:g} ms idle between requests", COMPARED, {}, ("-g", str(IDLE_MICROSECONDS))),
)


@dataclass
class Series:
    """All runs of one model in one scenario; a round that gave no result is None."""

    app: App
    scenario: Scenario
    model: str
    runs: list[Run | None] = field(default_factory=list)

    def of(self, value: Callable[[Run], float]) -> float | None:
        values = [value(run) for run in self.runs if run]
        return median(values) if values else None


class Results:
    def __init__(self, all_series: Iterable[Series]):
        self._series = {(s.app.name, s.scenario.name, s.model): s for s in all_series}

    def __iter__(self):
        return iter(self._series.values())

    def get(self, app: str, scenario: str, model: str) -> Series | None:
        series = self._series.get((app, scenario, model))
        return series if series and any(series.runs) else None

    def paired(self, app: str, scenario: str, one: str, other: str, compare: Callable[[Run, Run], float]) -> float | None:
        """The median over rounds of what `compare` makes of the two models' runs of the same round."""
        a, b = self.get(app, scenario, one), self.get(app, scenario, other)
        values = [compare(x, y) for x, y in zip(a.runs, b.runs) if x and y] if a and b else []
        return median(values) if values else None


def speed(one: Run, other: Run) -> float:
    return one.requests_per_second / other.requests_per_second


@dataclass(frozen=True)
class Target:
    """An aim of the project for one figure of one application."""

    app: str
    what: str
    measured: float | None
    aim: float
    at_most: bool = False
    unit: str = ""

    def cells(self) -> list[str]:
        met = self.measured is not None and (self.measured <= self.aim if self.at_most else self.measured >= self.aim)
        return [f"{self.app}: {self.what}", "–" if self.measured is None else f"{self.measured:.2f}{self.unit}",
                f"{'at most' if self.at_most else 'at least'} {self.aim:g}{self.unit}",
                "–" if self.measured is None else "yes" if met else "**no**"]


class OneWorker:
    """The programs and files that every run shares."""

    def __init__(self, work: Path, wanted: Callable[[str], bool], seconds: float):
        self.driver = closed_loop.build()
        self.program = worker_program()
        self.environment = ini_environment(work / "closed-loop")
        self.seconds = seconds
        self.missing: list[Missing] = []
        self.models = []
        for model in filter(wanted, MODELS):
            if why := self._stands_in_the_way(model):
                self.missing.append(Missing(f"{model}, closed loop", why))
            else:
                self.models.append(model)

    def _stands_in_the_way(self, model: str) -> str | None:
        if self.program is None:
            return f"no hearth-worker-8.x beside {hearth.program()}: make build"
        if f"--model {model}" not in _output([str(self.program), "--help"]):
            return f"{self.program.name} does not have it yet"
        if model == "snapshot":
            said = _output([str(self.program), "--probe-snapshot"]).strip()
            try:
                tracker = json.loads(said)
            except ValueError:
                return f"{self.program.name} --probe-snapshot says {said!r}"
            if tracker["tracker"] == "none":
                return f"written pages cannot be found here: {tracker['why']}"
        return None

    def version(self) -> str:
        return first_line([str(self.program), "--version"]) if self.program else ""

    def plan(self, apps: list[App]) -> list[Series]:
        return [Series(app, scenario, model) for app in apps for scenario in SCENARIOS for model in self.models
                if model in scenario.models and (not scenario.pages or app.name in scenario.pages)]

    def run(self, series: Series, last: bool) -> Run:
        """One run; in the last round of the one page also with workers added, to weigh them."""
        app, model = series.app, series.model
        pages = series.scenario.pages.get(app.name, (app.path,))
        before = 1000 if model in COMPARED else 10 if model in ONE_SHOT else 100
        options = ["-t", str(self.seconds), "-w", str(before), "-d", str(app.public), "-e", app.expected, *series.scenario.options]
        for page in pages:
            options += ["-u", page]
        command = [str(self.program), "--model", model]
        for setting in INI:
            command += ["--ini", setting]
        if model in WITH_SCRIPT:
            command += ["--script", str(LOOPS.get(app.name, app.worker_script))]
        if model in ("fork", "snapshot"):
            for page in dict.fromkeys(page for page in pages if page.startswith("/")):
                options += ["-U", page, "-U", page]
        if last and series.scenario.name == "page" and model in COMPARED:
            options += ["-x", str(EXTRA_WORKERS)]
        environment = self.environment | {"HEARTH_APP_DIR": str(app.folder), "HEARTH_MODEL": model}
        return closed_loop.drive(self.driver, options, command, app.folder, environment, self.seconds)


def worker_program() -> Path | None:
    """That of the highest PHP version, as `hearth serve` chooses."""
    def version(path: Path) -> list[int]:
        return [int(part) for part in path.name.rsplit("-", 1)[1].split(".")]

    found = [path for path in hearth.program().parent.glob("hearth-worker-*[0-9]") if path.is_file()]
    return max(found, key=version, default=None)


def _output(command: list[str]) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=20)
    return done.stdout + done.stderr


def measure(bench: OneWorker, apps: list[App], rounds: int, say: Callable[[str], None]) -> tuple[Results, list[Missing]]:
    """Every round runs each model of each scenario once, another one first each time."""
    plan = bench.plan(apps)
    failed: dict[tuple[str, str], Missing] = {}
    for turn in range(rounds):
        for app in apps:
            for scenario in SCENARIOS:
                here = [series for series in plan if series.app is app and series.scenario is scenario]
                for series in here[turn % max(1, len(here)):] + here[:turn % max(1, len(here))]:
                    what = f"{app.name}, {scenario.title}, {series.model}"
                    try:
                        run = bench.run(series, turn + 1 == rounds)
                    except RuntimeError as error:
                        failed.setdefault((what, str(error)), Missing(f"{what}, closed loop", f"failed: {error}"))
                        series.runs.append(None)
                        say(f"  {what} FAILED: {error}")
                        continue
                    series.runs.append(run)
                    wrong = f", {run.wrong} WRONG ANSWERS: {run.complaint}" if run.wrong else ""
                    ended = f", {run.ended} workers ended" if run.ended else ""
                    say(f"  {what:45} round {turn + 1} {run.requests_per_second:8.0f} req/s {run.p50:8.1f} µs{wrong}{ended}")
    return Results(plan), list(failed.values())


# Requests a second of `snapshot`, as a share of those of `worker`.
AIM_OF_WORKER = {"echo": 0.75, "symfony": 0.85, "laravel": 0.97}
# Microseconds of a restore.
AIM_OF_RESTORE = {"symfony": 5}
AIM_OF_ANY_RESTORE = 12


def targets(results: Results, apps: list[App]) -> list[Target]:
    """Snapshot against the others, and the engine's own time."""
    names = [app.name for app in apps]
    found = [Target(app, "snapshot/worker", results.paired(app, "page", "snapshot", "worker", speed), aim)
             for app, aim in AIM_OF_WORKER.items() if app in names]
    if "echo" in names:
        found.append(Target("echo", "`snapshot` takes longer than `worker`, a request", results.paired(
            "echo", "page", "snapshot", "worker", lambda s, a: s.per_request - a.per_request), 6, True, " µs"))
    for app, of_g, d_of_g in (("symfony", 8, 0.52), ("laravel", 15, 1.32)):
        if app not in names:
            continue
        found += [
            Target(app, "snapshot/request", results.paired(app, "page", "snapshot", "request", speed), of_g),
            Target(app, "snapshot/fork", results.paired(app, "page", "snapshot", "fork", speed), 15),
            Target(app, "fork/request", results.paired(app, "page", "fork", "request", speed), d_of_g),
            Target(app, "snapshot/worker, four pages in turn", results.paired(app, "four", "snapshot", "worker", speed), 0.9),
            Target(app, "snapshot/worker, mixed load", results.paired(app, "mixed", "snapshot", "worker", speed), 0.9),
        ]
    for app in names:
        series = results.get(app, "page", "snapshot")
        phases = [run.phases["all"] for run in series.runs if run and "all" in run.phases] if series else []
        found += [
            Target(app, "restore, median", median(phases) if phases else None,
                   AIM_OF_RESTORE.get(app, AIM_OF_ANY_RESTORE), True, " µs"),
            Target(app, "idle p50, snapshot/worker", results.paired(app, "idle", "snapshot", "worker", lambda s, a: s.p50 / a.p50), 1.1, True),
            Target(app, "idle p99, snapshot/worker", results.paired(app, "idle", "snapshot", "worker", lambda s, a: s.p99 / a.p99), 1.1, True),
        ]
    return found


def number(value: float | None, digits: int = 0) -> str:
    return "–" if value is None else f"{value:.{digits}f}"


def page_table(results: Results, app: App) -> str:
    head = [app.name, "req/s", "µs/request", "p50/p99 µs", "CPU µs/request", "× worker", "× request", "design req/s"]
    lines = []
    for model in MODELS:
        series = results.get(app.name, "page", model)
        if not series:
            continue
        wrong = sum(run.wrong for run in series.runs if run)
        ended = sum(run.ended for run in series.runs if run)
        notes = f" ({wrong} wrong answers)" * (wrong > 0) + f" ({ended} workers ended)" * (ended > 0)
        lines.append([
            f"{model}{notes}",
            number(series.of(lambda run: run.requests_per_second)),
            number(series.of(lambda run: run.per_request), 1),
            f"{number(series.of(lambda run: run.p50), 1)} / {number(series.of(lambda run: run.p99), 1)}",
            number(series.of(lambda run: run.cpu_per_request), 1),
            number(results.paired(app.name, "page", model, "worker", speed), 2),
            number(results.paired(app.name, "page", model, "request", speed), 2),
            number(DESIGN[app.name].get(model)),
        ])
    return table.markdown(head, lines)


def compared_table(results: Results, apps: list[App]) -> str:
    """`worker` and `snapshot` in the other scenarios."""
    head = ["", "worker req/s", "snapshot req/s", "snapshot/worker", "worker p50/p99 µs", "snapshot p50/p99 µs"]
    lines = []
    for app in apps:
        for scenario in SCENARIOS[1:]:
            both = [results.get(app.name, scenario.name, model) for model in COMPARED]
            if not any(both):
                continue
            speeds = [number(series.of(lambda run: run.requests_per_second)) if series else "–" for series in both]
            ratio = number(results.paired(app.name, scenario.name, "snapshot", "worker", speed), 2)
            latencies = [f"{number(series.of(lambda run: run.p50), 1)} / {number(series.of(lambda run: run.p99), 1)}" if series else "–"
                         for series in both]
            # Asleep most of the time: requests per second would only tell how long.
            rates = ["–"] * 3 if scenario.name == "idle" else [*speeds, ratio]
            lines.append([f"{app.name}, {scenario.title}", *rates, *latencies])
    return table.markdown(head, lines)


def each_request_table(results: Results, apps: list[App]) -> str:
    """p50 by request of the mixed load: where `snapshot` and `worker` differ."""
    lines = []
    for app in apps:
        p50: dict[str, dict[str, list[float]]] = {}
        for model in COMPARED:
            series = results.get(app.name, "mixed", model)
            for run in series.runs if series else []:
                for one in run.each if run else []:
                    p50.setdefault(one["request"], {}).setdefault(model, []).append(one["p50"])
        for request, of in p50.items():
            cells = [number(median(of[model]), 1) if model in of else "–" for model in COMPARED]
            lines.append([f"{app.name} `{request}`", *cells])
    return table.markdown(["mixed load, p50 µs", *COMPARED], lines) if lines else ""


def extras(results: Results, apps: list[App]) -> list[str]:
    """Sentences about memory and the engine's phases."""
    said = []
    for app in apps:
        weights = []
        for model in COMPARED:
            series = results.get(app.name, "page", model)
            weighed = next((run.extra for run in reversed(series.runs) if run and run.extra), None) if series else None
            if weighed:
                weights.append(f"{model} {weighed['pss_kb'] / 1024:.1f} / {weighed['private_dirty_kb'] / 1024:.1f} MB")
        if weights:
            said.append(f"{app.name}: memory of each of {EXTRA_WORKERS} workers more (100 requests each), PSS / private dirty: "
                        + ", ".join(weights) + ".")
        series = results.get(app.name, "page", "snapshot")
        phases = [run.phases for run in series.runs if run and run.phases] if series else []
        if phases:
            said.append(f"{app.name}: restore in µs, medians: " + ", ".join(
                f"{name} {median(of[name] for of in phases):.1f}" for name in PHASES if all(name in of for of in phases)) + ".")
    return said


def document(results: Results, apps: list[App], rounds: int, seconds: float) -> list[str]:
    """The parts of the page, tables and sentences."""
    parts = [
        "## One worker, closed loop",
        "Driver, zygote and worker share one core and talk frames; no server, no HTTP. Medians of "
        f"{rounds} interleaved rounds of {seconds:g} s, ratios within a round; `µs/request` is the whole cycle, p50 and p99 what the "
        "driver waits for an answer (a one-shot worker is forked ahead of it). Symfony and Laravel run in Hearth's own loops. `fork` and "
        "`snapshot` have seen each page twice before, in synthetic requests. The design's figures are those of the prototype, "
        "on another machine of this kind.",
    ]
    parts += [page_table(results, app) for app in apps]
    if any(series.scenario.name != "page" and any(series.runs) for series in results):
        parts += [compared_table(results, apps)]
    parts += filter(None, [each_request_table(results, apps), "\n".join(f"- {line}" for line in extras(results, apps))])
    parts += ["### Aims", table.markdown(["", "measured", "aim", "met"], [target.cells() for target in targets(results, apps)])]
    return parts


def summary(results: Results, apps: list[App]) -> str:
    """The table of README.md: requests per second, and how that compares with `worker`."""
    head = ["one worker, closed loop", *(title for app in apps for title in (f"{app.name} req/s", "× `worker`"))]
    lines = []
    for model in MODELS:
        cells = []
        for app in apps:
            series = results.get(app.name, "page", model)
            cells += [number(series.of(lambda run: run.requests_per_second)) if series else "–",
                      number(results.paired(app.name, "page", model, "worker", speed), 2)]
        if any(cell != "–" for cell in cells):
            lines.append([f"`{model}`", *cells])
    return table.markdown(head, lines)


def as_json(results: Results, apps: list[App]) -> dict:
    return {
        "design_requests_per_second": DESIGN,
        "aims": [vars(target) for target in targets(results, apps)],
        "runs": [{"app": s.app.name, "scenario": s.scenario.name, "model": s.model,
                  "runs": [run and run.as_dict() for run in s.runs]} for s in results],
    }
