"""A folder to run tests in: a copy of php-src's tests, the php.ini of both sides, and the files that a test leaves, which are removed behind it."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

from . import cases

HERE = Path(__file__).resolve().parent
MOST_CASES = 25_000  # a worker that keeps its state loads another file for each test
# Not part of PHP, or changes what PHP prints.
LEFT_OUT = {"xdebug", "hearth"}
# Extensions that others need first.
FIRST = ["mysqlnd", "pdo", "xml", "dom"]


def program(name: str) -> str:
    found = shutil.which(name)
    if found is None:
        sys.exit(f"error: {name} is not installed")
    return found


def ini_text(minor: str) -> str:
    """One php.ini for both sides: run-tests.php's settings, and every extension that is installed."""
    available = Path(f"/etc/php/{minor}/mods-available")
    names = [file.stem for file in available.glob("*.ini") if file.stem not in LEFT_OUT]
    names.sort(key=lambda name: (FIRST.index(name) if name in FIRST else len(FIRST), name))
    lines = [line for name in names for line in (available / f"{name}.ini").read_text().splitlines() if line.strip() and not line.startswith(";")]
    return cases.RUN_TESTS_INI + cases.PHP_DEFAULTS + "\n".join(lines) + "\n"


class Place:
    """`folder/src` has the tests. Places with names of one length give outputs of one length."""

    def __init__(self, folder: Path, sources: Path, minor: str) -> None:
        self.folder, self.sources, self.source = folder, sources, folder / "src"
        self.temporary = folder / "tmp"
        self.temporary.mkdir(parents=True)
        self.source.mkdir()
        copy = "find . -path '*/tests/*' ! -type d -print0 | tar -c --null -T - | tar -x -C \"$0\""
        subprocess.run(["sh", "-c", copy, self.source], cwd=sources, check=True)
        shutil.copy(sources / "run-tests.php", self.source)
        for file in ("phpt.php", "once.php", "loop.php"):
            shutil.copy(HERE / file, folder)
        (folder / "cases").mkdir()
        (folder / "cases/phptcase1.php").write_text("<?php require Conformance\\Phpt::begin(); Conformance\\Phpt::end();\n")
        (folder / "php.ini").write_text(ini_text(minor))
        self.seen: dict[Path, tuple[int, set[str]]] = {}

    def offer_cases(self) -> None:
        first = self.folder / "cases/phptcase1.php"
        for number in range(2, MOST_CASES):
            os.link(first, self.folder / f"cases/phptcase{number}.php")

    def environment(self, minor: str) -> dict[str, str]:
        return {
            "PATH": os.environ.get("PATH", "/usr/bin:/bin"), "HOME": os.environ.get("HOME", "/"), "TZ": "", "TMPDIR": str(self.temporary),
            "PHPRC": str(self.folder / "php.ini"), "PHP_INI_SCAN_DIR": "", "NO_INTERACTION": "1", "SKIP_ONLINE_TESTS": "1", "SKIP_SLOW_TESTS": "1",
            "TEST_PHP_EXECUTABLE": program(f"php{minor}"), "TEST_PHP_CGI_EXECUTABLE": program(f"php-cgi{minor}"), "TEST_PHP_SRCDIR": str(self.source),
            "TEST_PHP_EXTRA_ARGS": "",
        }

    def remember(self, test: Path) -> None:
        """What is in the folders that a test is likely to write to, before its first use."""
        for folder in (self.source, test.parent, *(entry for entry in self.folders_below(test.parent))):
            if folder not in self.seen:
                self.seen[folder] = (0, set(os.listdir(folder)))

    def folders_below(self, folder: Path) -> list[Path]:
        if not hasattr(self, "below"):
            self.below: dict[Path, list[Path]] = {}
        if folder not in self.below:
            self.below[folder] = [Path(entry.path) for entry in os.scandir(folder) if entry.is_dir(follow_symlinks=False)]
        return self.below[folder]

    def tidy(self, test: Path) -> None:
        """Removes what the test has left, and puts back what it has removed."""
        for folder in (self.source, test.parent, *self.folders_below(test.parent)):
            if not folder.is_dir():
                shutil.rmtree(folder, ignore_errors=True)
                shutil.copytree(self.sources / folder.relative_to(self.source), folder, symlinks=True)
                continue
            changed, names = self.seen[folder]
            now = folder.stat().st_mtime_ns
            if now == changed:
                continue
            there = set(os.listdir(folder))
            for name in there - names:
                remove(folder / name)
            for name in names - there:
                lost = self.sources / (folder / name).relative_to(self.source)
                if lost.is_dir():
                    shutil.copytree(lost, folder / name, symlinks=True)
                elif lost.exists():
                    shutil.copy2(lost, folder / name)
            self.seen[folder] = (folder.stat().st_mtime_ns, names)
        for name in os.listdir(self.temporary):
            remove(self.temporary / name)


def remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        for folder, _, _ in os.walk(path):
            os.chmod(folder, 0o700)
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)
