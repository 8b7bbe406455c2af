"""What a result has to say about where it came from."""

import os
import platform
import re
import subprocess
from pathlib import Path


def first_line(command: list[str]) -> str:
    """The first line a program prints, e.g. its version; empty when it cannot run."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=20)
    except (FileNotFoundError, subprocess.TimeoutExpired):
        return ""
    return next(iter((done.stdout + done.stderr).strip().splitlines()), "")


def describe() -> dict:
    cpuinfo = Path("/proc/cpuinfo").read_text()
    model = re.search(r"^model name\s*: (.*)$", cpuinfo, re.MULTILINE)
    gibibytes = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / 2**30
    return {
        "cpu": model[1].strip() if model else platform.machine(),
        "cores": len(os.sched_getaffinity(0)),
        "memory_gib": round(gibibytes),
        "kernel": platform.release(),
        "system": platform.freedesktop_os_release().get("PRETTY_NAME", ""),
        "load_average": os.getloadavg()[0],
        "commit": first_line(["git", "describe", "--always", "--dirty"]),
    }


def slug(machine: dict) -> str:
    """Names the machine in the results' folder; MACHINE=… overrides it."""
    if name := os.environ.get("MACHINE"):
        return name
    words = re.sub(r"\((R|TM|r|tm)\)|@.*|CPU|Processor", " ", machine["cpu"])
    return "-".join(re.findall(r"[a-z0-9.]+", words.lower())[:4]) + f"-{machine['cores']}c"
