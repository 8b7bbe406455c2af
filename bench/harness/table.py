"""Markdown tables out of samples."""

from statistics import median

from .load import Sample


def median_of(samples: list[Sample]) -> Sample:
    """Field by field: a disturbed run does not decide any of them. Errors add up."""
    return Sample(
        requests_per_second=median(s.requests_per_second for s in samples),
        p50=median(s.p50 for s in samples),
        p99=median(s.p99 for s in samples),
        cpu_per_request=median(s.cpu_per_request for s in samples),
        errors=sum(s.errors for s in samples),
    )


def duration(microseconds: float) -> str:
    """Three digits at most: 87 µs, 4.5 ms, 120 ms."""
    if microseconds < 1000:
        return f"{microseconds:.0f} µs"
    milliseconds = microseconds / 1000
    return f"{milliseconds:.1f} ms" if milliseconds < 100 else f"{milliseconds:.0f} ms"


def megabytes(count: int | None) -> str:
    return "–" if count is None else f"{count / 1e6:.0f}"


def markdown(head: list[str], rows: list[list[str]]) -> str:
    lines = [head, ["---"] + ["---:"] * (len(head) - 1), *rows]
    return "\n".join("| " + " | ".join(cells) + " |" for cells in lines)
