"""Requests one after another, each on a connection of its own, as `ab -c 1 -n N` makes them."""

import os
import socket
import time
from dataclasses import asdict, dataclass
from urllib.parse import urlsplit

from .processes import LOAD_CORES


@dataclass(frozen=True)
class Times:
    """Milliseconds from connecting to the answer's last byte."""

    average: float
    least: float
    errors: int

    def as_dict(self) -> dict:
        return asdict(self)


def ask(url: str, count: int, expected: str) -> Times:
    """Runs on the load's core, as wrk does. An answer without `expected` is an error."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, set(LOAD_CORES))
    try:
        times, errors = [], 0
        for _ in range(count):
            began = time.perf_counter()
            errors += expected.encode() not in _get(url)
            times.append((time.perf_counter() - began) * 1000)
        return Times(sum(times) / count, min(times), errors)
    finally:
        os.sched_setaffinity(0, before)


def _get(url: str) -> bytes:
    """The whole answer, head included; what came of it when the connection breaks."""
    parts = urlsplit(url)
    answer = b""
    try:
        with socket.create_connection((parts.hostname, parts.port), timeout=30) as connection:
            connection.sendall(f"GET {parts.path or '/'} HTTP/1.1\r\nHost: {parts.netloc}\r\nConnection: close\r\n\r\n".encode())
            while piece := connection.recv(65536):
                answer += piece
    except OSError:
        pass
    return answer
