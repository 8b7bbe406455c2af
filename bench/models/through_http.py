"""Table 2: servers through HTTP, Hearth in all nine models among them: speed, CPU time, and Bref's measurement repeated.

Every round visits every peer once per number of connections, so that what disturbs the machine disturbs all; the tables show
medians over rounds.
"""

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from harness import one_by_one, ratios, table
from harness.load import Sample, measure, settle, warm_up
from harness.processes import CORES, Memory, Server, memory, tree
from peers import App, Missing, Peer, Unavailable, hearth
from published import AIMS, BREF, BREF_OTHERS, CPU

CONNECTIONS = tuple(int(number) for number in os.environ.get("CONNECTIONS", "1,16,64,256").split(","))
SLOW_UP_TO = 64
"""With more connections, a model with a process per request answers less than one request of each in a run."""
IDLE_AT_MOST = 10e6
"""Aim for the resident memory of Hearth's server process without load."""
REFERENCE = "nginx + php-fpm"
BREF_REQUESTS = 100


class Row:
    """One peer serving one application, and what was measured of it."""

    def __init__(self, peer: Peer, server: Server):
        self.peer = peer
        self.server = server
        self.samples: dict[int, list[Sample]] = {c: [] for c in CONNECTIONS if c <= SLOW_UP_TO or not peer.slow}
        self.alone: list[one_by_one.Times] = []
        self.idle_main = memory([server.main])
        self.loaded: Memory | None = None
        self.died: str | None = None

    def visit(self, connections: int, seconds: float) -> Sample | None:
        """One run; None, and none ever after, when the server does not survive it."""
        try:
            sample = measure(self.server, connections, seconds)
        except RuntimeError as error:
            self.died = f"at {connections} connections: {error}"
            return None
        self.samples[connections].append(sample)
        return sample

    def medians(self) -> dict[int, Sample]:
        return {c: table.median_of(samples) for c, samples in self.samples.items() if samples}


@dataclass
class Results:
    apps: list[tuple[App, list[Row]]]
    missing: list[Missing]


def relay_peer() -> Peer | None:
    """Hearth's own part alone: the tests' stand-in for a worker answers `hello` without PHP."""
    program = hearth.program().with_name("fake-worker")
    if not program.exists():
        return None
    name = "hearth, relay only: no PHP"
    return Peer(name, lambda app, work: hearth.start(
        name, app, work, "request", {"HEARTH_PHP_WORKER_PROGRAM": str(program)}), expected="hello")


def measure_all(apps: list[App], peers: list[Peer], work: Path, rounds: int, seconds: float, say: Callable[[str], None]) -> Results:
    results = Results([], [])
    for app in apps:
        alone = [relay] if app.name == "echo" and (relay := relay_peer()) else []
        results.apps.append((app, _measure_app(app, peers + alone, work, rounds, seconds, results.missing, say)))
    return results


def _measure_app(app: App, peers: list[Peer], work: Path, rounds: int, seconds: float, missing: list[Missing],
                 say: Callable[[str], None]) -> list[Row]:
    rows: list[Row] = []
    running: list[Server] = []
    try:
        for number, peer in enumerate(peers):
            folder = work / f"{app.name}-{number}"
            folder.mkdir()
            try:
                server = peer.start(app, folder)
                running.append(server)
                server.wait_until_it_answers(peer.expected or app.expected)
            except Unavailable as error:
                missing.append(Missing(peer.name, str(error)))
                continue
            except RuntimeError as error:
                say(f"  {app.name} {peer.name} FAILED: {error}")
                last_words = str(error).strip().splitlines()
                missing.append(Missing(f"{peer.name} on {app.name}", f"failed: {last_words[-1] if last_words else 'no words'}"))
                continue
            rows.append(Row(peer, server))
        for row in rows:
            warm_up(row.server, max(1, seconds / 2))
            settle(row.server)
        for turn in range(rounds):
            # A different one goes first each round.
            order = rows[turn % max(1, len(rows)):] + rows[:turn % max(1, len(rows))]
            for row in order:
                if not row.died and not (row.peer.slow and turn):
                    row.alone.append(one_by_one.ask(row.server.url, BREF_REQUESTS, row.peer.expected or app.expected))
            for connections in CONNECTIONS:
                for row in order:
                    if row.died or connections not in row.samples:
                        continue
                    sample = row.visit(connections, min(seconds, 1) if row.peer.slow else seconds)
                    settle(row.server)
                    what = f"DIED {row.died}"
                    if sample:
                        errors = f", {sample.errors} ERRORS" if sample.errors else ""
                        what = f"{sample.requests_per_second:8.0f} req/s {sample.cpu_per_request:7.1f} µs CPU{errors}"
                    say(f"  {app.name} round {turn + 1} c={connections:<3} {row.peer.name:26} {what}")
        for row in rows:
            row.loaded = memory(tree(row.server.roots))
        return rows
    finally:
        for server in running:
            server.stop()


def by_start(names: dict, name: str):
    return next((value for start, value in names.items() if name.startswith(start)), None)


def app_table(app: App, rows: list[Row]) -> str:
    reference = next((row.medians() for row in rows if row.peer.name.startswith(REFERENCE)), None)
    first, *others = (f"c={c}" for c in CONNECTIONS)
    head = ["", f"req/s {first}", *others, *(f"p50/p99 c={c}" for c in CONNECTIONS), f"CPU µs/request {first}", *others,
            "times php-fpm's speed, c=16", "RSS/PSS MB", "published CPU c=1/16/64"]
    lines = []
    for row in rows:
        medians = row.medians()

        def each(show: Callable[[Sample], str]) -> list[str]:
            return [show(medians[c]) if c in medians else "died" if c in row.samples else "–" for c in CONNECTIONS]

        ratio = "–"
        if reference and 16 in reference and 16 in medians:
            ratio = f"{medians[16].requests_per_second / reference[16].requests_per_second:.2f}"
        then = by_start(CPU[app.name], row.peer.name)
        aim = by_start({name: aims[app.name] for name, aims in AIMS.items() if app.name in aims}, row.peer.name)
        published = "/".join(map(str, then)) if then else f"aim: {aim}" if aim else "–"
        errors = sum(sample.errors for sample in medians.values())
        lines.append([
            row.peer.name + (f" ({errors} errors)" if errors else "") + (" (died)" if row.died else ""),
            *each(lambda s: f"{s.requests_per_second:.0f}"),
            *each(lambda s: f"{table.duration(s.p50)} / {table.duration(s.p99)}"),
            *each(lambda s: f"{s.cpu_per_request:.0f}"),
            ratio,
            f"{table.megabytes(row.loaded.rss)}/{table.megabytes(row.loaded.pss)}",
            published,
        ])
    return table.markdown(head, lines)


def aims_table(results: Results) -> str:
    """Each ratio that is an aim, within a round, by number of connections."""
    head = ["ratio, median of rounds", "aim: at most", *(f"c={c}" for c in CONNECTIONS)]
    lines = []
    for aim in ratios.AIMS:
        for app, rows in results.apps:
            found = ratios.sides(aim, {row.peer.name: row.samples for row in rows})
            if not found:
                continue
            ours, peer = found
            lines += [
                [f"{app.name}: {aim.ours} / {aim.peer}, {figure.name}", f"{aim.at_most[app.name]:.2f}",
                 *(ratios.cell(ratios.by_round(figure, ours.get(c, []), peer.get(c, [])), aim.at_most[app.name]) for c in CONNECTIONS)]
                for figure in aim.figures
            ]
    return table.markdown(head, lines) if lines else ""


def idle_memory(results: Results) -> str:
    """Each model's server process: they are the same program, but workers share its pages."""
    rows = [row for _, rows in results.apps[:1] for row in rows if row.peer.name.startswith("hearth ")]
    if not rows:
        return ""
    each = ", ".join(f"{row.peer.name}: {table.megabytes(row.idle_main.rss)}/{table.megabytes(row.idle_main.pss)} MB" for row in rows)
    most = max(row.idle_main.rss for row in rows)
    verdict = "met" if most <= IDLE_AT_MOST else "**not met**"
    return (f"Memory of Hearth's server process alone, idle, RSS/PSS: {each}. Aim: an RSS of at most {table.megabytes(round(IDLE_AT_MOST))} MB; "
            f"the most is {most / 1e6:.1f} MB: {verdict}.")


def bref_table(results: Results) -> str:
    """Average and least milliseconds of requests one by one, beside what Bref published for its way of the same letter."""
    head = ["average / least ms", *(title for app, _ in results.apps for title in (app.name, "published"))]
    names = list(dict.fromkeys(row.peer.name for _, rows in results.apps for row in rows if row.alone and "relay" not in row.peer.name))
    lines = []
    for name in names:
        model = next((model for model in hearth.MODELS if name.startswith(f"hearth {model} ")), None)
        cells = []
        for app, rows in results.apps:
            row = next((row for row in rows if row.peer.name == name and row.alone), None)
            then = BREF.get(model, {}).get(app.name)
            errors = sum(times.errors for times in row.alone) if row else 0
            cells += [
                f"{median(times.average for times in row.alone):.2f} / {min(times.least for times in row.alone):.2f}"
                + (f" ({errors} errors)" if errors else "") if row else "–",
                f"{then[0]} / {then[1]}" if then else "–",
            ]
        lines.append([f"{hearth.MODELS[model]} {name}" if model else name, *cells])
    for name, figures in BREF_OTHERS.items():
        then = [figures.get(app.name) for app, _ in results.apps]
        lines.append([f"published only: {name}", *(cell for pair in then for cell in ("–", f"{pair[0]} / {pair[1]}" if pair else "–"))])
    return table.markdown(head, lines)


def document(results: Results, rounds: int, seconds: float) -> list[str]:
    """The parts of the page, tables and sentences."""
    parts = [
        "## Through HTTP",
        f"Server on core {CORES[0]}, wrk (keep-alive) on core {CORES[-1]}; medians of {rounds} interleaved rounds of "
        f"{seconds:g} s (one second for models with a process per request); opcache on, validate_timestamps=0, the same ini settings "
        "for all; Symfony and Laravel in Hearth's own loops, in FrankenPHP by the examples' scripts for it; `fork` and `snapshot` with "
        "`php.warm_up` set to the page. Published figures are from another machine of this kind: compare ratios, not numbers.",
    ]
    if len(CORES) < 2:
        parts.append("**This machine has one core: server and load shared it.**")
    for app, rows in results.apps:
        parts += [f"### {app.name}", app_table(app, rows)]
    if aims := aims_table(results):
        parts += [
            "### Aims beside other servers",
            "`CPU` is the processor time by a request of all processes of a server, `time by request` the inverse of its rate. Each ratio is taken within a round; "
            "the table shows medians over rounds, and **no** where one is above its aim.",
            aims,
        ]
    if idle := idle_memory(results):
        parts.append(idle)
    parts += [
        "### One request after another, beside Bref's table",
        f"{BREF_REQUESTS} requests in each round (in one round for models with a process per request), each on a new connection as "
        f"`ab -c 1 -n {BREF_REQUESTS}` makes them, from connecting to the last byte: the median of the rounds' averages / the least. "
        "What differs: Bref measured execution times on AWS Lambda with an earlier PHP (on its share of a processor), behind its own "
        "bootstrap; here a local server answers over loopback. Compare the order of the models and their ratios.",
        bref_table(results),
    ]
    return parts


def summary(results: Results) -> str:
    """The table of README.md: one line per peer, 16 connections."""
    names = list(dict.fromkeys(row.peer.name for _, rows in results.apps for row in rows))
    of = {(app.name, row.peer.name): row.medians()[16] for app, rows in results.apps for row in rows if row.samples.get(16)}
    apps = [app.name for app, _ in results.apps]
    best = {app: min((sample.cpu_per_request for (name, peer), sample in of.items()
                      if name == app and "relay" not in peer), default=0) for app in apps}
    lines = []
    for name in names:
        cells = []
        for app in apps:
            sample = of.get((app, name))
            if sample is None:
                cells += ["–", "–"]
                continue
            cpu = f"{sample.cpu_per_request:.0f}"
            cells += [f"{sample.requests_per_second:.0f}", f"**{cpu}**" if sample.cpu_per_request == best[app] else cpu]
        lines.append([name, *cells])
    head = ["through HTTP, 16 connections", *(title for app in apps for title in (f"{app} req/s", "CPU µs"))]
    return table.markdown(head, lines)


def as_json(results: Results) -> dict:
    return {
        "published_cpu_us": CPU,
        "published_bref_ms": BREF | BREF_OTHERS,
        "results": [{
            "app": app.name,
            "peer": row.peer.name,
            "version": row.peer.note,
            "samples": {str(c): [s.as_dict() for s in samples] for c, samples in row.samples.items()},
            "one_by_one_ms": [times.as_dict() for times in row.alone],
            "died": row.died,
            "idle_main_bytes": vars(row.idle_main),
            "loaded_tree_bytes": vars(row.loaded),
        } for app, rows in results.apps for row in rows],
    }
