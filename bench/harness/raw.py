"""Writes the raw results of a run as JSON that a person can read: each value on one line where it fits, numbers side by side."""

import json
from pathlib import Path
from textwrap import fill

WIDTH = 160


def write(path: Path, results: object) -> None:
    path.write_text(lines(results) + "\n")


def lines(value: object, indent: int = 0) -> str:
    whole = json.dumps(value)
    if indent + len(whole) <= WIDTH or not isinstance(value, (dict, list)):
        return whole
    inner = " " * (indent + 1)
    if isinstance(value, dict):
        # As json does it: keys are text.
        parts = [f"{inner}{json.dumps(str(key))}: {lines(part, indent + 1)}" for key, part in value.items()]
        return "{\n" + ",\n".join(parts) + "\n" + " " * indent + "}"
    if all(isinstance(part, (int, float)) for part in value):
        return "[\n" + fill(whole[1:-1], WIDTH, initial_indent=inner, subsequent_indent=inner) + "\n" + " " * indent + "]"
    parts = [inner + lines(part, indent + 1) for part in value]
    return "[\n" + ",\n".join(parts) + "\n" + " " * indent + "]"
