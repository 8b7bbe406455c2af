"""Writes docs/phpt.md from the results of finished runs."""

import collections
import json
from pathlib import Path

from . import differences

FAILED_TOO, SMALL = "failed", 40
COLUMNS = ("passed", "failed", "skipped", "not run", "differs")
HEAD = """\
# php-src's own tests in one restored worker

After this page you can judge how well the model [`snapshot`](guide/models.md) isolates requests, by tests that PHP's developers wrote for another
purpose. Each test of php-src runs as one request in one worker of `hearth serve`, in a shuffled order. Whatever a test defines, sets, opens or breaks would
be there for the next ones, if the restore did not remove it. The result of each test is compared with php-cgi's on the same machine, which starts a
process for each test.

This page is generated from runs: `conformance/phpt/run --page`. `conformance/phpt/run --help` explains how to repeat them.
"""
COUNTED = """\
## How a result is counted
| | |
|---|---|
| passed | The output is what the test expects, as run-tests.php compares it, and php-cgi passes too. The names of the header lines are php-cgi's. |
| failed as php-cgi does | php-cgi fails the test on this machine, and Hearth's output is the same, byte by byte. Numbers may differ if two runs of php-cgi differ in them. |
| skipped as php-cgi | The test's own `--SKIPIF--` or a missing extension says so. |
| not run | A web server has no place for it: standard input, phpdbg, or a setting of php.ini that has to be set before PHP starts. |
| differs | Anything else. Each has its reason [below](#differences-with-their-reasons). |

- Both sides load the same extensions and the same php.ini, with OPcache. Settings of `--INI--` are made by `ini_set()` at the start of the request.
- Tests run in the global scope. Four frames that lead from the worker script to a test are removed from back traces.
- Files that a test leaves behind are removed after it, on both sides. Shared memory and semaphores of System V are not, on neither side.
- A test that differs without a known reason runs once more, behind other tests: some depend on the clock or on free ports. The table counts those that are as php-cgi's then.
- A worker that cannot be restored ends and another takes its place, as the model promises: tests change the user, the priority, the session or the namespaces of their process.
- The engine's own oracle is on: after each restore, every page of the worker is compared with the snapshot (`HEARTH_SNAPSHOT_ORACLE=1`).
"""

REREAD = """\
`conformance/phpt/run --all --explained --fresh` runs these tests again, and `--model php-fpm` says what php-fpm answers to them. Each reason was reread against the tests, both outputs
and php-fpm's on 27 November 2026.

"""


class Run:
    def __init__(self, file: Path) -> None:
        lines = [json.loads(line) for line in file.read_text().splitlines()]
        self.results = {line["test"]: line for line in lines if "test" in line}
        self.summaries = [line["summary"] for line in lines if "summary" in line]
        self.summary = self.summaries[-1] if self.summaries else None
        self.seconds = sum(summary["seconds"] for summary in self.summaries)

    def workers(self) -> int:
        """How many took part: one for each start, and one for each that ended before the server did."""
        return sum(said["starts"] + sum(count for text, count in said["workers"].items() if text.startswith(("worker retired", "worker died"))) for said in self.summaries)

    def by_folder(self) -> dict[str, collections.Counter]:
        counted: dict[str, collections.Counter] = collections.defaultdict(collections.Counter)
        for line in self.results.values():
            counted[line["folder"]][line["result"]] += 1
        return counted

    def differing(self) -> set[str]:
        return {name for name, line in self.results.items() if line["result"] == "differs"}


def table(head: list[str], rows: list[list]) -> str:
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    return "\n".join(lines + ["| " + " | ".join(str(cell) for cell in row) + " |" for row in rows]) + "\n"


def of_runs(runs: list[Run]) -> str:
    rows = []
    for run in runs:
        total = collections.Counter(line["result"] for line in run.results.values())
        said = run.summary
        # An interrupted run has no summary of its first part.
        part = " (last part)" if run.summaries[0]["resumed"] else ""
        second = sum(line.get("second", False) for line in run.results.values())
        rows.append([f"`{said['model']}`", said["seed"], said["date"], *(f"{total[name]:,}" for name in COLUMNS), second, f"{run.seconds / 60:.1f} min{part}", f"{run.workers()}{part}"])
    return table(["model", "seed", "date (UTC)", "passed", "failed as php-cgi does", "skipped as php-cgi", "not run", "differs", "on a second try", "duration", "workers"], rows)


def by_folder(snapshots: list[Run], others: list[Run]) -> str:
    first = snapshots[0].by_folder()
    rows = []
    for folder in sorted(first):
        row = [f"{folder}", *(first[folder][name] or "" for name in COLUMNS[:4])]
        row += [run.by_folder()[folder]["differs"] or "" for run in (*snapshots, *others)]
        rows.append(row)
    head = ["folder", "passed", "failed as php-cgi does", "skipped", "not run"]
    return table(head + [f"differs in `{run.summary['model']}`, seed {run.summary['seed']}" for run in (*snapshots, *others)], rows)


def reasons(runs: list[Run]) -> str:
    found = [run for run in runs if run.summary["model"] != "worker"]
    text = []
    for group in differences.groups():
        here = [[name for name in group["tests"] if name in run.differing()] for run in found if run.summary["model"] in group["models"]]
        counts = ", ".join(f"{len(names)} in `{run.summary['model']}` (seed {run.summary['seed']})"
                           for run, names in zip([run for run in found if run.summary["model"] in group["models"]], here))
        text.append(f"### {group['title']}\n{group['reason']}\n\n{counts}. Tests: " + ", ".join(group["tests"][:SMALL])
                    + (f" and {len(group['tests']) - SMALL} more in conformance/phpt/differences.json" if len(group["tests"]) > SMALL else "") + ".\n")
    return "\n".join(text)


def not_run(run: Run) -> str:
    counted = collections.Counter(line["why"] for line in run.results.values() if line["result"] == "not run")
    return table(["why", "tests"], [[why, count] for why, count in counted.most_common()])


def write(root: Path, kept: Path) -> str:
    runs = [Run(file) for file in sorted(kept.glob("*-all.jsonl"))]
    runs = [run for run in runs if run.summary is not None]
    order = ("snapshot", "request", "worker")
    runs.sort(key=lambda run: (order.index(run.summary["model"]), run.summary["seed"]))
    snapshots = [run for run in runs if run.summary["model"] == "snapshot"]
    if not snapshots:
        return "no finished run of `--all` in snapshot: nothing was written"
    others = [run for run in runs if run.summary["model"] != "snapshot"]
    said = snapshots[0].summary
    unexplained = sum(len(run.differing() - differences.explained(run.summary["model"]).keys()) for run in runs if run.summary["model"] != "worker")
    worker = next((run for run in others if run.summary["model"] == "worker"), None)
    parts = [HEAD, f"## Results\nPHP {said['php']} of Debian, tests of php-src {said['sources']}, {said['tests']:,} tests. "
             f"**Differences without a reason: {unexplained}.**\n", of_runs(runs)]
    if worker:
        parts.append(f"`worker` shares the process's state between requests on purpose. There, {len(worker.differing()):,} tests have another result than in a process of "
                     "their own: they meet functions, classes, settings and handlers of tests before them.\n")
    parts += [COUNTED, "## By folder\n" + by_folder(snapshots, others), "## Differences, with their reasons\n" + REREAD + reasons(runs),
              "## Not run\n" + not_run(snapshots[0])]
    (root / "docs/phpt.md").write_text("\n".join(parts))
    return "docs/phpt.md is written"
