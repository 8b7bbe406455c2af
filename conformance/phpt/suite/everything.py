"""All of php-src's tests in one worker, in a shuffled order, beside php-cgi's own results. See conformance/phpt/run."""

import collections
import concurrent.futures
import datetime
import json
import os
import queue
import random
import shutil
import sys
import tempfile
import time
from pathlib import Path

import debian

from . import cases, differences, page, php_cgi
from .answers import Answer, Judge, loosely, masked
from .php_cgi import FAILED, NOT_RUN, PASSED, SKIPPED, Php, PhpCgi
from .fpm import Fpm
from .place import Place
from .served import Hearth

ALL = ["Zend/tests", "tests", "ext", "sapi"]
DIFFERS = "differs"
# Where requests share state: differences need no reason.
SHARING = ("worker", "php-fpm")
PROGRESS_SECONDS = 5.0 if not sys.stdout.isatty() else 0.5


class Progress:
    """A line that says how far a run has come."""

    def __init__(self, what: str, total: int) -> None:
        self.what, self.total, self.done = what, total, 0
        self.counted: collections.Counter[str] = collections.Counter()
        self.began = self.said = time.monotonic()

    def count(self, result: str) -> None:
        self.done += 1
        self.counted[result] += 1
        if time.monotonic() - self.said > PROGRESS_SECONDS or self.done == self.total:
            self.said = time.monotonic()
            seconds = int(self.said - self.began)
            parts = ", ".join(f"{count} {name}" for name, count in self.counted.most_common())
            end = "\n" if not sys.stdout.isatty() or self.done == self.total else "\r"
            print(f"{self.what}: {self.done} of {self.total}, {seconds // 60}:{seconds % 60:02}: {parts}", end=end, flush=True)


class Suite:
    def __init__(self, sources: Path, minor: str, kept: Path, jobs: int, hearth: Path) -> None:
        self.sources, self.minor, self.kept, self.jobs, self.hearth = sources, minor, kept, jobs, hearth
        self.work = Path(tempfile.mkdtemp(prefix="phpt-", dir="/tmp"))
        self.work.chmod(0o755)
        self.places: queue.Queue[Place] = queue.Queue()
        self.places.put(Place(self.work / "c0", sources, minor))
        place = self.places.queue[0]
        self.php = Php(minor, place)
        self.judge = Judge(self.php.cli)
        self.php_cgi = PhpCgi(self.php, self.judge, kept / "expected.sqlite")

    def close(self) -> None:
        self.judge.close()
        shutil.rmtree(self.work, ignore_errors=True)

    def tests_in(self, folders: list[str]) -> list[cases.Case]:
        return cases.all_cases(self.sources, folders or [folder for folder in ALL if (self.sources / folder).exists()], self.php.cli)

    def expect(self, wanted: list[cases.Case]) -> None:
        """Has php-cgi run what it has not run yet."""
        missing = [case for case in wanted if self.php_cgi.find(case) is None]
        if not missing:
            return
        for number in range(1, self.jobs):
            if self.places.qsize() < self.jobs:
                self.places.put(Place(self.work / f"c{number}", self.sources, self.minor))
        progress = Progress("php-cgi", len(missing))

        def run(case: cases.Case) -> str:
            place = self.places.get()
            try:
                expected = self.php_cgi.run(case, place)
            finally:
                self.places.put(place)
            self.php_cgi.keep(case, expected)
            return expected.result

        with concurrent.futures.ThreadPoolExecutor(self.jobs) as pool:
            for result in pool.map(run, missing):
                progress.count(result)

    def same(self, case: cases.Case, answer: Answer, folder: Path) -> str:
        """The result of a test beside php-cgi's: passed, failed as php-cgi does, or why it differs. A difference is looked at beside another
        run of php-cgi: some tests depend on the clock, or on what else the machine does."""
        result = self.beside(self.php_cgi.find(case), case, answer, folder)
        if result in (PASSED, FAILED):
            return result
        place = self.places.get()
        try:
            other = self.php_cgi.run(case, place)
        finally:
            self.places.put(place)
        again = self.beside(other, case, answer, folder) if other.result in (PASSED, FAILED) else result
        if again in (PASSED, FAILED):
            return again
        first, ours = self.php_cgi.find(case), masked(answer.body, folder)
        varies = first.result == other.result == FAILED and first.answer != other.answer and not (first.lost or other.lost or answer.lost)
        return FAILED if varies and loosely(ours) in (loosely(first.answer), loosely(other.answer)) else result

    def beside(self, expected: php_cgi.Expected, case: cases.Case, answer: Answer, folder: Path) -> str:
        passes = self.judge.passes(case, answer)
        if expected.result == PASSED:
            if not passes:
                return answer.lost or "fails"
            return PASSED if sorted(expected.headers) == answer.names() else f"headers {' '.join(answer.names())} for {' '.join(expected.headers)}"
        if expected.lost or answer.lost:
            return FAILED if expected.lost and answer.lost else answer.lost or f"answers where php-cgi was {expected.lost}"
        return FAILED if masked(answer.body, folder) == expected.answer else "passes" if passes else "fails otherwise"

    def run(self, model: str, seed: int, order: list[cases.Case], scope: str, fresh: bool) -> Path:
        """Runs what is not in the file of results yet, and returns the file."""
        file = self.kept / f"{model}-{seed}-{scope}.jsonl"
        if fresh:
            file.unlink(missing_ok=True)
        done = {json.loads(line).get("test") for line in file.read_text().splitlines()} if file.exists() else set()
        place = Place(self.work / "h0", self.sources, self.minor)
        if model == "worker":
            place.offer_cases()
        log = self.work / f"{model}-{seed}.log"
        progress = Progress(f"{model}, seed {seed}", len(order))
        server = Fpm(self.php, place, log) if model == "php-fpm" else Hearth(self.hearth, model, self.php, place, log)
        began = time.monotonic()
        try:
            with file.open("a") as results:
                for case in order:
                    if case.name in done:
                        progress.done += 1
                        continue
                    line = self.one(case, server, model)
                    results.write(json.dumps(line) + "\n")
                    results.flush()
                    progress.count(line["result"])
                summary = {"seconds": round(time.monotonic() - began, 1), "date": datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d %H:%M"), "seed": seed,
                           "model": model, "tests": len(order), "php": self.php.version, "sources": self.version_of_sources(), "workers": server.lives(),
                           "starts": server.starts, "resumed": bool(done)}
                results.write(json.dumps({"summary": summary}) + "\n")
        finally:
            server.stop()
            shutil.copy(log, self.kept / log.name)
        shutil.rmtree(place.folder, ignore_errors=True)
        return file

    def one(self, case: cases.Case, server: Hearth | Fpm, model: str) -> dict:
        expected = self.php_cgi.find(case)
        if expected.result in (SKIPPED, NOT_RUN):
            return {"test": case.name, "folder": case.folder, "result": expected.result, "why": expected.why}
        if model != "snapshot" and b"chroot(" in case.section("FILE"):
            return {"test": case.name, "folder": case.folder, "result": NOT_RUN, "why": "PHP has no chroot() in this model, as under php-fpm"}
        began = time.monotonic()
        answer = server.ask(case)
        seconds = time.monotonic() - began
        result = self.same(case, answer, server.place.folder)
        second = False
        if result not in (PASSED, FAILED) and model not in SHARING and case.name not in differences.explained(model):
            # Timing, ports, memory of the machine: once more, behind another test. The page counts these.
            other = self.same(case, server.ask(case), server.place.folder)
            second = other in (PASSED, FAILED)
            result = other if second else result
        why = "" if result in (PASSED, FAILED) else result
        self.forget_difference(case, model)
        if why:
            self.keep_difference(case, model, masked(answer.body, server.place.folder), expected)
        return {"test": case.name, "folder": case.folder, "result": DIFFERS if why else result, "why": why, "ms": round(seconds * 1000, 1), "second": second}

    def forget_difference(self, case: cases.Case, model: str) -> None:
        base = self.kept / "differences" / model / case.name.replace(": ", "/")
        for suffix in (".ours", ".php-cgi"):
            base.with_suffix(suffix).unlink(missing_ok=True)

    def keep_difference(self, case: cases.Case, model: str, ours: bytes, expected: php_cgi.Expected) -> None:
        base = self.kept / "differences" / model / case.name.replace(": ", "/")
        base.parent.mkdir(parents=True, exist_ok=True)
        base.with_suffix(".ours").write_bytes(ours + b"\n")
        base.with_suffix(".php-cgi").write_bytes(expected.answer + b"\n")

    def version_of_sources(self) -> str:
        header = self.sources / "main/php_version.h"
        found = [line.split('"')[1] for line in header.read_text().splitlines() if "PHP_VERSION " in line] if header.exists() else []
        return found[0] if found else "?"


def shuffled(found: list[cases.Case], seed: int, sample: int | None) -> list[cases.Case]:
    order = sorted(found, key=lambda case: case.name)
    random.Random(seed).shuffle(order)
    return order[:sample] if sample else order


def verdict(file: Path, model: str, whole: bool) -> tuple[int, int]:
    """Prints what is not explained, and returns how many tests were as expected and how many were not."""
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    results = {line["test"]: line for line in lines if "test" in line}
    explained = differences.explained(model)
    wrong = 0
    for name, line in sorted(results.items()):
        if line["result"] == DIFFERS and name not in explained and model not in SHARING:
            print(f"FAIL {model} {name}: {line['why']}")
            wrong += 1
    for name in sorted(explained if whole and model not in SHARING else ()):
        if name in results and results[name]["result"] in (PASSED, FAILED) and not explained[name].sometimes:
            print(f"note: {model} {name} is as php-cgi's now: take it out of differences.json")
    counted = collections.Counter(line["result"] for line in results.values())
    print(f"{model}: {', '.join(f'{count} {name}' for name, count in counted.most_common())}, {wrong} not explained", flush=True)
    return len(results) - wrong, wrong


def beside_php_fpm(kept: Path, file: Path) -> None:
    """For each reason: how often php-fpm's answer is Hearth's, how often php-cgi's. Numbers count for nothing."""
    ran = {json.loads(line).get("test") for line in file.read_text().splitlines()}
    for group in differences.groups():
        counted: collections.Counter[str] = collections.Counter()
        for test in ran.intersection(group["tests"]):
            ours, theirs = ((kept / "differences" / model / test.replace(": ", "/")).with_suffix(".ours") for model in (group["models"][0], "php-fpm"))
            if ours.exists():
                same = theirs.exists() and loosely(ours.read_bytes()) == loosely(theirs.read_bytes())
                counted["as Hearth" if same else "otherwise" if theirs.exists() else "as php-cgi"] += 1
        print(f"{group['title']}: php-fpm answers {', '.join(f'{name} {count}' for name, count in sorted(counted.items())) or 'nothing here'}", flush=True)


def main(options) -> int:
    kept = options.keep
    kept.mkdir(parents=True, exist_ok=True)
    if options.page:
        print(page.write(options.root, kept))
        return 0
    options.sources = debian.source(f"php{options.php}", "PHP_SRC")
    if options.sources is None:
        print("nothing was run: there are no tests\n0 passed, 0 failed")
        return 0
    if not (options.sources / "run-tests.php").exists():
        print(f"nothing was run: {options.sources} has no run-tests.php; PHP_SRC is the folder of php-src's sources\n0 passed, 0 failed")
        return 0
    suite = Suite(options.sources, options.php, kept, options.jobs, options.hearth)
    right = wrong = 0
    try:
        found = [case for case in suite.tests_in(options.folders) if options.only in case.name]
        if options.explained:
            named = {test for group in differences.groups() for test in group["tests"]}
            found = [case for case in found if case.name in named]
        part = "-".join(text.replace("/", "_") for text in (*options.folders, options.only, "explained" * options.explained, f"{options.sample or ''}") if text)
        scope = part or "all"
        for seed in options.seed:
            order = shuffled(found, seed, options.sample)
            print(f"{len(order)} tests, seed {seed}, PHP {suite.php.version}, tests of {suite.version_of_sources()}", flush=True)
            suite.expect(order)
            for model in options.model:
                file = suite.run(model, seed, order, scope, options.fresh)
                ours, theirs = verdict(file, model, scope == "all")
                right, wrong = right + ours, wrong + theirs
                if options.explained and model == "php-fpm":
                    beside_php_fpm(kept, file)
    except KeyboardInterrupt:
        print("\ninterrupted; the same command goes on from here", file=sys.stderr)
        return 130
    finally:
        suite.close()
    print(f"{right} passed, {wrong} failed")
    return int(wrong > 0)
