"""What the suites of this folder share: a hearth on a port of its own, and a table of results that is committed and compared.

A suite's table is `results.json` beside its `run`: when it ran, with which versions, how many cases each row has, and each difference with its reason.
`conformance/page` writes docs/conformance.md from these files.
"""

import contextlib
import datetime
import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
READY_SECONDS = 60


def programs() -> Path:
    """The folder of the built programs."""
    return Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")).resolve() / "debug"


def hearth_program() -> Path:
    return Path(os.environ.get("HEARTH_BIN") or programs() / "hearth").resolve()


def environment(**more: str) -> dict[str, str]:
    """This process's environment without Hearth's settings, except the folder of its programs."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("HEARTH_") or name == "HEARTH_WORKER_DIR"}
    return kept | more


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


@contextlib.contextmanager
def program(command: list, log: Path, **more) -> Iterator[subprocess.Popen]:
    """Runs a program in a session of its own, and ends all of that session."""
    with log.open("ab") as output:
        process = subprocess.Popen([str(part) for part in command], stdout=output, stderr=output, stdin=subprocess.DEVNULL, start_new_session=True, **more)
    try:
        yield process
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(READY_SECONDS)
        except subprocess.TimeoutExpired:
            print(f"{command[0]} did not end in {READY_SECONDS} s", file=sys.stderr)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)


@contextlib.contextmanager
def listening(command: list, port: int, log: Path) -> Iterator[None]:
    """Runs a program that listens on this port; goes on when it does."""
    with program(command, log) as process:
        deadline = time.monotonic() + READY_SECONDS
        while True:
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
                break
            if time.monotonic() > deadline or process.poll() is not None:
                sys.exit(f"error: {command[0]} was never ready:\n{log.read_text(errors='replace')}")
            time.sleep(0.02)
        yield


@contextlib.contextmanager
def hearth(command: str, *arguments: object, folder: Path, **more: str) -> Iterator[tuple[int, subprocess.Popen]]:
    """`hearth COMMAND` on a free port; gives the port and the process."""
    log = folder / f"hearth-{command}-{time.monotonic_ns()}.log"
    whole = [hearth_program(), command, *arguments, "--listen", "127.0.0.1:0", "--log-format", "text"]
    with program(whole, log, env=environment(**more), cwd=folder) as process:
        deadline = time.monotonic() + READY_SECONDS
        while time.monotonic() < deadline and process.poll() is None:
            if ready := re.search(r"hearth: ready on https?://127\.0\.0\.1:(\d+)", log.read_text(errors="replace")):
                yield int(ready[1]), process
                return
            time.sleep(0.02)
        sys.exit(f"error: hearth was never ready:\n{log.read_text(errors='replace')}")


@contextlib.contextmanager
def broker(socket_path: Path, folder: Path, *arguments: object) -> Iterator[subprocess.Popen]:
    """`hearth egress` at this socket; gives the process."""
    log = folder / "broker.log"
    with program([hearth_program(), "egress", "--socket", socket_path, "--log-format", "text", *arguments], log, env=environment()) as process:
        deadline = time.monotonic() + READY_SECONDS
        while "ready on" not in log.read_text(errors="replace"):
            if time.monotonic() > deadline or process.poll() is not None:
                sys.exit(f"error: the broker was never ready:\n{log.read_text(errors='replace')}")
            time.sleep(0.02)
        yield process


def version(*command: str) -> str:
    """The first version number that a program prints."""
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    found = re.search(r"\d+\.\d+[\w.+~-]*", done.stdout + done.stderr)
    return found[0] if found else "unknown"


@dataclass
class Table:
    """The cases of a suite by row, and those that came out otherwise than the suite wants, each with what happened."""

    suite: str
    rows: dict[str, int] = field(default_factory=dict)
    differing: dict[str, str] = field(default_factory=dict)
    # How many cases an entry of `differing` stands for, if it is more than one.
    groups: dict[str, int] = field(default_factory=dict)
    skipped: dict[str, int] = field(default_factory=dict)
    versions: dict[str, str] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    def note(self, row: str, case: str, difference: str | None) -> None:
        self.rows[row] = self.rows.get(row, 0) + 1
        if difference is not None:
            name = f"{row}: {case}"
            if name in self.differing:
                self.groups[name] = self.groups.get(name, 1) + 1
            self.differing[name] = difference

    def skip(self, row: str, cases: int = 1) -> None:
        self.skipped[row] = self.skipped.get(row, 0) + cases

    def end(self, about: dict[str, str], partial: bool = False) -> int:
        """Compares with the committed table, or writes it (`UPDATE=1`); prints the last line and returns the exit status."""
        path = Path(__file__).resolve().parent / self.suite / "results.json"
        committed = json.loads(path.read_text()) if path.is_file() else {"differences": {}, "rows": {}}
        known = committed["differences"]
        if os.environ.get("UPDATE") and not partial:
            reasons = {case: {"got": got, "why": known.get(case, {}).get("why", "why?")} for case, got in sorted(self.differing.items())}
            for case, count in self.groups.items():
                reasons[case]["cases"] = count
            today = datetime.datetime.now(datetime.UTC).date().isoformat()
            table = about | {"ran": today, "versions": self.versions, "rows": self.rows, "skipped": self.skipped, "differences": reasons, "notes": self.notes}
            path.write_text(json.dumps(table, indent=1, ensure_ascii=False) + "\n")
            known = reasons
        wrong = 0
        for case in sorted(set(self.differing) - set(known)):
            print(f"FAILED {case}: {self.differing[case]}")
            wrong += 1
        for case in sorted(set(known) - set(self.differing)):
            # A case that did not run here says nothing.
            if case.partition(": ")[0] in self.rows and not partial:
                print(f"FAILED {case}: comes out as the suite wants now, take it out of results.json")
                wrong += 1
        for row, cases in self.rows.items():
            if not partial and cases < committed["rows"].get(row, 0):
                print(f"FAILED {row}: {committed['rows'][row] - cases} cases did not run")
                wrong += 1
        for note in self.notes:
            print(note)
        right = sum(self.rows.values()) - len(set(self.differing) - set(known))
        print(f"{right} passed, {wrong} failed")
        return 1 if wrong else 0
