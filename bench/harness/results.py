"""Reads the tables of the newest results of a bench: bench/results/DATE-MACHINE/NAME.md."""

import re
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent.parent


class Table(NamedTuple):
    above: list[str]
    """The headings and paragraphs since the table before."""
    head: list[str]
    rows: dict[str, list[str]]

    def at(self, row: str, column: int | str) -> float:
        """The first number of a cell; times in their unit as it stands there."""
        index = self.head.index(column) - 1 if isinstance(column, str) else column
        found = re.match(r"\**([0-9][0-9,.]*)", self.rows[row][index])
        assert found, f"no number: {row}, {column}: {self.rows[row][index]}"
        return float(found[1].replace(",", ""))

    def milliseconds(self, row: str, column: str) -> float:
        cell = self.rows[row][self.head.index(column) - 1]
        return self.at(row, column) / (1000 if cell.endswith("µs") else 1)


class Results:
    """The newest file of one bench."""

    def __init__(self, name: str) -> None:
        self.path = max(ROOT.glob(f"bench/results/*/{name}.md"))
        words = self.path.read_text(encoding="utf-8")
        self.tables: list[Table] = []
        above: list[str] = []
        for block in words.split("\n\n"):
            if block.startswith("|"):
                lines = [[cell.strip() for cell in line.strip("|").split("|")] for line in block.strip().splitlines()]
                self.tables.append(Table(above, lines[0], {line[0]: line[1:] for line in lines[2:]}))
                above = []
            else:
                above.append(block.strip())

    def table(self, below: str) -> Table:
        """The first one below a heading or beginning so, or with such a first column."""
        for table in self.tables:
            if table.head[0] == below or any(line.lstrip("# ").startswith(below) for line in table.above):
                return table
        raise KeyError(f"{self.path}: no table {below}")

    def version(self, pattern: str) -> str:
        """What the file says about a program's version: the pattern's first group."""
        found = re.search(pattern, self.path.read_text(encoding="utf-8"))
        assert found, f"{self.path}: no version matches {pattern}"
        return found[1]

    def note(self, words: str) -> str:
        return f"{words} {self.path.relative_to(ROOT)}"
