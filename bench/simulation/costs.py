"""What work costs, in seconds of one core, taken from this repository's own measurements.

Three unknowns of the fan-out (a write, a message in it, an event's way in) are solved from three rows of the `realtime` bench; the rows that are left are what
the tests compare the simulation with. What stands in no result of a bench is an assumption and says so.
"""

import json
import math
from dataclasses import dataclass
from pathlib import Path
from statistics import median

RESULTS = Path(__file__).resolve().parents[1] / "results"
US = 1e-6

# Sockets of one event loop in the rows that `write_warm` and `write_cold` are from.
WARM, COLD = 1000, 19_000


@dataclass(frozen=True)
class Costs:
    """`Costs.measured()` takes them from bench/results. Seconds of one core, bytes, counts."""

    # One write to one socket, if an event loop has a thousand sockets, and if it has 19,000, when the processor's caches hold less of each.
    write_warm: float
    write_cold: float
    # Each message in such a write.
    message: float
    # An event on the node where it is published: read, checked, encoded, given to the event loops.
    event: float
    # A client that connects and subscribes, in an avalanche.
    connect: float
    # Between nodes: a packet, and each event in it. The node that publishes (it hears its own packet, too), and one that listens.
    tell_packet: float
    tell_event: float
    hear_packet: float
    hear_event: float
    # The broker, one thread: a packet that comes in, and each copy that goes out.
    broker_packet: float
    broker_copy: float
    # User space and kernel, each connection.
    connection_bytes: float
    # Assumptions: there and back between a node and its broker; the kernel's backlog of each listener (net.core.somaxconn);
    # an event's bytes in a packet; a packet's most bytes (docs/guide/realtime-scaling.md).
    round_trip: float = 300 * US
    backlog: int = 4096
    event_bytes: int = 256
    packet_bytes: int = 128 * 1024

    def write(self, sockets: int) -> float:
        """One write by an event loop that has so many sockets: between the two measured points by the logarithm, beyond them as at the nearer one."""
        share = math.log(max(sockets, 1) / WARM) / math.log(COLD / WARM)
        return self.write_warm + (self.write_cold - self.write_warm) * min(1.0, max(0.0, share))

    @classmethod
    def measured(cls) -> "Costs":
        fanout, avalanche, nodes = (read(name) for name in ("realtime", "avalanche", "nodes"))
        write, message, event = solve([
            [1 / row["messages_per_write"], 1, 1 / row["subscribers"], row["us"]]
            for row in (fanout_row(fanout, title) for title in FITTED)
        ])
        idle = fanout["19000 idle"]["Hearth"]
        all_of_them = median(one["cpu_s"] for report in idle for one in report["broadcasts"])
        between = {name: fit(nodes, name) for name in ("listening", "publishing", "broker")}
        return cls(
            write_warm=write * US, write_cold=(all_of_them - event * US) / COLD - message * US, message=message * US, event=event * US,
            connect=middle(avalanche["19,500 at once"]["Hearth"], "server", "cpu_us_each") * US,
            tell_packet=between["publishing"][0] * US, tell_event=between["publishing"][1] * US,
            hear_packet=between["listening"][0] * US, hear_event=between["listening"][1] * US,
            broker_packet=between["broker"][0] * US, broker_copy=between["broker"][1] * US,
            # Both ends of each connection are on the machine that measures: half of the kernel's memory is the server's.
            connection_bytes=middle(idle, "server", "resident_each") + middle(idle, "kernel_bytes_each") / 2,
        )


# One row for each unknown: mostly writes, mostly messages, mostly events.
FITTED = ("1000 subscribers, 100 client events/s", "1000 subscribers, closed loop, window 16",
          "1000 subscribers in 100 channels, 1000 client events/s")


# The entries that a result must have to be used; a run of only some tables has not.
NEEDED = {"realtime": (*FITTED, "19000 idle"), "avalanche": ("19,500 at once",), "nodes": ("redis, 2 nodes, 10,000 events/s",)}


def source(name: str) -> Path:
    """The newest whole result of a bench."""
    for path in sorted(RESULTS.glob(f"*/{name}.json"), reverse=True):
        reports = json.loads(path.read_text())["reports"]
        if all("Hearth" in reports.get(title, {}) or isinstance(reports.get(title), list) for title in NEEDED[name]):
            return path
    raise SystemExit(f"error: no whole {name}.json in bench/results (hint: make bench NAME={name})")


def read(name: str) -> dict:
    return json.loads(source(name).read_text())["reports"]


def middle(reports: list[dict], *path: str) -> float:
    values = []
    for report in reports:
        for part in path:
            report = report[part]
        values.append(report)
    return median(values)


def fanout_row(reports: dict, title: str) -> dict:
    """A row of `realtime`: microseconds of CPU a delivery, messages a write (as the reader saw it; one at least), subscribers of each channel."""
    runs = reports[title]["Hearth"]
    return {
        "us": 1e6 / middle(runs, "server", "delivered_per_cpu_s"),
        "messages_per_write": max(1.0, middle(runs, "generator", "deliveries_per_read")),
        "subscribers": runs[0]["n"] / runs[0]["channels"],
    }


def fit(nodes: dict, what: str, broker: str = "redis") -> tuple[float, float]:
    """Microseconds of a packet, and of each event in it (`broker`: of each copy of it), by least squares over the runs of `nodes`; none is below zero."""
    rows = []
    for reports in nodes.values():
        for report in reports:
            if report["broker"] != broker or (what == "listening" and report["listening_us"] is None):
                continue
            per_packet = report["events_per_packet"]
            if what == "broker":
                rows.append((1.0, float(report["nodes"]), report["broker_us"] * per_packet))
            elif what == "listening":
                rows.append((1.0, per_packet, report["listening_us"] * per_packet))
            else:
                alone = median(one["publishing_us"] for one in nodes[f"no broker, {report['rate']:,} events/s"])
                rows.append((1.0, per_packet, (report["publishing_us"] - alone) * per_packet))
    return least_squares(rows)


def least_squares(rows: list[tuple[float, float, float]]) -> tuple[float, float]:
    """x and y, neither below zero, such that a*x + b*y comes closest to c in all rows, relative to c."""
    rows = [(a / c, b / c, 1.0) for a, b, c in rows if c > 0]
    aa, ab, bb = (sum(f(a, b) for a, b, _ in rows) for f in (lambda a, b: a * a, lambda a, b: a * b, lambda a, b: b * b))
    ac, bc = sum(a for a, _, _ in rows), sum(b for _, b, _ in rows)
    determinant = aa * bb - ab * ab
    if determinant > 1e-12:
        x, y = (ac * bb - bc * ab) / determinant, (aa * bc - ab * ac) / determinant
        if x >= 0 and y >= 0:
            return x, y
    return min([(ac / aa, 0.0), (0.0, bc / bb)], key=lambda found: sum((a * found[0] + b * found[1] - c) ** 2 for a, b, c in rows))


def solve(rows: list[list[float]]) -> list[float]:
    """Linear equations, each row its coefficients and the right side, by elimination."""
    rows = [row[:] for row in rows]
    for i in range(len(rows)):
        pivot = max(range(i, len(rows)), key=lambda k: abs(rows[k][i]))
        rows[i], rows[pivot] = rows[pivot], rows[i]
        rows[i] = [value / rows[i][i] for value in rows[i]]
        for k in range(len(rows)):
            if k != i:
                rows[k] = [a - rows[k][i] * b for a, b in zip(rows[k], rows[i])]
    return [row[-1] for row in rows]
