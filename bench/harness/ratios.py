"""The ratios to other servers that the project has set itself as aims, for all benches that run Hearth beside them.

A ratio is taken within a round and its median over rounds counts: what disturbs the machine disturbs both sides of it.
"""

from collections.abc import Callable
from statistics import median
from typing import NamedTuple, TypeVar

from .load import Sample


class Figure(NamedTuple):
    """One number of a run, so made that less is better."""

    name: str
    of: Callable[[Sample], float]


CPU = Figure("CPU", lambda sample: sample.cpu_per_request)
TIME = Figure("time by request", lambda sample: 1 / sample.requests_per_second if sample.requests_per_second else float("inf"))
"""The inverse of the rate."""
P50 = Figure("p50", lambda sample: sample.p50)
P99 = Figure("p99", lambda sample: sample.p99)


class Aim(NamedTuple):
    """`ours` and `peer`: how the names of two servers begin. `at_most`: the ratio by application."""

    ours: str
    peer: str
    at_most: dict[str, float]
    figures: tuple[Figure, ...] = (CPU,)


AIMS = [
    Aim("hearth worker", "Swoole", {"echo": 1.05, "symfony": 1.15, "laravel": 1.15}),
    Aim("hearth snapshot", "FrankenPHP worker", {"echo": 0.5, "symfony": 0.78, "laravel": 0.95}),
    Aim("hearth snapshot", "Swoole", {"echo": 1.6, "symfony": 1.4, "laravel": 1.25}),
    Aim("hearth request", "nginx + php-fpm", {"echo": 0.55, "symfony": 0.8, "laravel": 0.9}),
    Aim("hearth fpm", "nginx + php-fpm", {"echo": 1.0, "symfony": 1.0, "laravel": 1.0}, (CPU, TIME)),
]

Measured = TypeVar("Measured")


def sides(aim: Aim, servers: dict[str, Measured]) -> tuple[Measured, Measured] | None:
    """What was measured of the aim's two servers, by their names: Hearth's, then the peer's. None unless both were there."""
    found = [next((of for name, of in servers.items() if name.startswith(f"{begin} (")), None) for begin in (aim.ours, aim.peer)]
    return None if None in found else (found[0], found[1])


def by_round(figure: Figure, ours: list[Sample], peer: list[Sample]) -> list[float]:
    """One ratio for each round that both took part in."""
    pairs = [(figure.of(one), figure.of(other)) for one, other in zip(ours, peer, strict=False)]
    return [one / other for one, other in pairs if other]


def cell(ratios: list[float], at_most: float | None = None) -> str:
    """Two digits, as they are judged, too."""
    if not ratios:
        return "–"
    value = round(median(ratios), 2)
    return f"{value:.2f}" + (" **no**" if at_most is not None and value > at_most else "")
