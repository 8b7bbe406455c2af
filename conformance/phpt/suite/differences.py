"""Differences from php-cgi that have a reason: conformance/phpt/differences.json."""

import json
from dataclasses import dataclass
from pathlib import Path

FILE = Path(__file__).resolve().parent.parent / "differences.json"


@dataclass
class Reason:
    text: str
    sometimes: bool  # it depends on the time, or on other processes


def groups() -> list[dict]:
    return json.loads(FILE.read_text()) if FILE.exists() else []


def explained(model: str) -> dict[str, Reason]:
    found = {}
    for group in groups():
        if model in group["models"]:
            for test in group["tests"]:
                found[test] = Reason(group["reason"], group.get("sometimes", False))
    return found
