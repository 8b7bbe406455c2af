"""Servers under measurement: started on one core, observed through /proc, and ended by the bench alone.

CPU time and memory are those of the whole tree below the started process; CPU time of children that have ended is in
their parent's account (proc(5), cutime and cstime).
"""

import os
import signal
import subprocess
import time
import urllib.error
import urllib.request
from dataclasses import dataclass, field
from pathlib import Path

TICKS = os.sysconf("SC_CLK_TCK")
CORES = sorted(os.sched_getaffinity(0))
SERVER_CORE = CORES[0]
server_cores = [SERVER_CORE]
"""The cores of servers that are started from now on."""
LOAD_CORES = CORES[1:2] or CORES[:1]


def _stat(pid: int) -> list[str] | None:
    """Fields of /proc/PID/stat from the third on: the second, the name, may hold blanks and brackets."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    except (FileNotFoundError, ProcessLookupError):
        return None


def tree(roots: list[int]) -> list[int]:
    """The processes `roots` and everything below them."""
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and (stat := _stat(int(entry.name))):
            children.setdefault(int(stat[1]), []).append(int(entry.name))
    found, left = [], list(roots)
    while left:
        pid = left.pop()
        found.append(pid)
        left.extend(children.get(pid, []))
    return found


def cpu_seconds(roots: list[int]) -> float:
    ticks = 0
    for pid in tree(roots):
        if stat := _stat(pid):
            ticks += sum(int(stat[i]) for i in (11, 12, 13, 14))  # utime stime cutime cstime
    return ticks / TICKS


@dataclass(frozen=True)
class Memory:
    """Bytes. `pss` is None where another user's processes keep it from us."""

    rss: int
    pss: int | None
    files: int | None
    """Of `pss`, pages of files: programs and libraries."""


def memory(pids: list[int]) -> Memory:
    rss, pss, files = 0, 0, 0
    for pid in pids:
        try:
            rollup = Path(f"/proc/{pid}/smaps_rollup").read_text()
            values = {line.split(":")[0]: int(line.split()[1]) * 1024
                      for line in rollup.splitlines() if line.endswith("kB")}
            rss += values["Rss"]
            pss = None if pss is None else pss + values["Pss"]
            files = None if files is None else files + values["Pss_File"]
        except PermissionError:
            pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
            rss += pages * os.sysconf("SC_PAGE_SIZE")
            pss = files = None
        except (FileNotFoundError, ProcessLookupError):
            continue
    return Memory(rss, pss, files)


@dataclass
class Server:
    """One started peer serving one application. `main` is the process that owns the listener."""

    name: str
    url: str
    log: Path
    started: list[subprocess.Popen] = field(default_factory=list)

    @property
    def roots(self) -> list[int]:
        return [process.pid for process in self.started]

    @property
    def main(self) -> int:
        return self.started[-1].pid

    def run(self, command: list[str], environment: dict[str, str] | None = None, cwd: Path | None = None) -> None:
        """Starts a program of this server on the servers' cores; several make one server (php-fpm, then nginx)."""
        with self.log.open("ab") as log:
            self.started.append(subprocess.Popen(
                ["taskset", "--cpu-list", ",".join(map(str, server_cores)), *command],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=cwd,
                env=os.environ | (environment or {}), start_new_session=True,
            ))

    def wait_until_it_answers(self, expected: str, seconds: float = 30) -> None:
        """Returns when the URL answers 200 with `expected` in its body; raises RuntimeError with the log's end otherwise."""
        deadline, last = time.monotonic() + seconds, "no answer"
        while time.monotonic() < deadline:
            if any(process.poll() is not None for process in self.started):
                last = "a process ended"
                break
            try:
                with urllib.request.urlopen(self.url, timeout=5) as answer:
                    body = answer.read().decode()
                if expected in body:
                    return
                last = f"answered {body[:200]!r}"
            except (urllib.error.URLError, ConnectionError, TimeoutError) as error:
                last = str(error)
            time.sleep(0.1)
        tail = self.log.read_text(errors="replace")[-1500:]
        raise RuntimeError(f"{self.name} does not serve {self.url}: {last}\n{tail}")

    def stop(self) -> None:
        """TERM, and after five seconds KILL, for the sessions that `run` made."""
        for process in reversed(self.started):
            if process.poll() is None:
                process.send_signal(signal.SIGTERM)
        deadline = time.monotonic() + 5
        for process in reversed(self.started):
            try:
                process.wait(max(0.1, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
