"""php-cgi's own result of each test: a process for each, several at a time, kept by a hash of the test and of all that it runs with."""

import hashlib
import json
import os
import signal
import sqlite3
import subprocess
import threading
import zlib
from dataclasses import dataclass
from pathlib import Path

from . import cases
from .answers import Answer, Judge, masked
from .place import Place, program

PASSED, FAILED, SKIPPED, NOT_RUN = "passed", "failed", "skipped", "not run"
SECONDS = 30
FORMAT = 2  # of what is kept, and of the driver: another number makes php-cgi run everything again


@dataclass
class Expected:
    result: str
    why: str = ""             # it was skipped or not run
    answer: bytes = b""       # masked
    headers: tuple[str, ...] = ()
    lost: str = ""


class Php:
    """The PHP of the machine: its programs, and what it knows."""

    def __init__(self, minor: str, place: Place) -> None:
        self.minor = minor
        self.cli, self.cgi = program(f"php{minor}"), program(f"php-cgi{minor}")
        environment = place.environment(minor)
        code = "echo json_encode([PHP_VERSION, ini_get_all(), array_map('strtolower', get_loaded_extensions())], JSON_INVALID_UTF8_SUBSTITUTE);"
        (place.folder / "known.php").write_text(f"<?php {code}")
        said = subprocess.run([self.cgi, "-q", place.folder / "known.php"], env=environment, capture_output=True, check=True, cwd=place.folder)
        self.version, self.settings, self.extensions = json.loads(said.stdout)
        self.extensions = ["opcache" if name == "zend opcache" else name for name in self.extensions]
        self.digest = hashlib.sha256(repr((FORMAT, self.version, (place.folder / "php.ini").read_text())).encode()).hexdigest()


def not_for_a_worker(case: cases.Case, php: Php, place: Place) -> tuple[str, str] | None:
    """The reason for which no server can run a test, or PHP cannot: (result, reason)."""
    if case.broken:
        return NOT_RUN, f"run-tests.php refuses it: {case.broken}"
    for section, what in cases.OF_A_COMMAND_LINE.items():
        if section in case.sections:
            return NOT_RUN, f"needs {what}"
    missing = [name for name in cases.extensions_of(case) if name not in php.extensions]
    if missing:
        return SKIPPED, f"extension {missing[0]} is not installed"
    needed = cases.at_start_only(cases.settings_of(case, (place.source / case.path).parent, place.temporary), php.settings)
    if needed:
        return NOT_RUN, f"needs php.ini setting {needed[0]} at start"
    return None


def write_case(case: cases.Case, place: Place) -> tuple[Path, cases.Request]:
    """Puts the test where the driver finds it."""
    test = (place.source / case.path).with_suffix(".php")
    place.remember(test)
    test.write_bytes(case.section("FILE"))
    environment = cases.environment_of(case, test.parent)
    if case.redirected:
        environment["REDIR_TEST_DIR"] = environment["REDIR_TEST_DIR"].replace(str(place.sources), str(place.source))
    request = cases.request_of(case, environment)
    arguments = case.section("ARGS").decode("latin-1").split()
    description = {"file": str(test), "name": "/" + str(test.relative_to(place.source)), "arguments": arguments, "environment": environment,
                   "settings": cases.settings_of(case, test.parent, place.temporary)}
    description["settings"] = {name: value for name, value in description["settings"].items() if name not in cases.IGNORED_SETTINGS}
    (place.folder / "case").write_bytes(cases.serialized(description))
    return test, request


def run_process(command: list, place: Place, environment: dict[str, str], body: bytes = b"") -> tuple[bytes, str]:
    """Its standard output, and why it is not whole."""
    variables = {name.encode("latin-1"): value.encode("latin-1") for name, value in environment.items()}
    with subprocess.Popen(command, cwd=place.source, env=variables, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
                          start_new_session=True) as process:
        try:
            output, _ = process.communicate(body, timeout=SECONDS)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.communicate()
            return b"", "too slow"
    return output, f"ended by signal {-process.returncode}" if process.returncode < 0 else ""


def ask_php_cgi(case: cases.Case, php: Php, place: Place) -> Answer:
    test, request = write_case(case, place)
    try:
        environment = place.environment(php.minor) | {
            "REDIRECT_STATUS": "1", "REQUEST_METHOD": request.method, "QUERY_STRING": request.query, "CONTENT_TYPE": request.fields.get("Content-Type", ""),
            "CONTENT_LENGTH": str(len(request.body)) if request.body else "", "SCRIPT_FILENAME": str(place.folder / "once.php"),
            "PATH_TRANSLATED": str(place.folder / "once.php"), "GATEWAY_INTERFACE": "CGI/1.1", "SERVER_PROTOCOL": "HTTP/1.1"}
        environment |= {"HTTP_" + name.upper().replace("-", "_"): value for name, value in request.fields.items() if name != "Content-Type"}
        environment = {name: value for name, value in environment.items() if value or name not in ("CONTENT_TYPE", "CONTENT_LENGTH")}
        output, lost = run_process([php.cgi, "-C"], place, environment, request.body)
        clean(case, php, place)
    finally:
        test.unlink(missing_ok=True)
        place.tidy(test)
    head, _, text = output.partition(b"\r\n\r\n")
    lines = [line.partition(":") for line in head.decode("latin-1").split("\r\n")]
    return Answer(text, [(name, value.strip()) for name, colon, value in lines if colon], lost)


def clean(case: cases.Case, php: Php, place: Place) -> None:
    if case.section("CLEAN").strip():
        script = (place.source / case.path).with_suffix(".clean.php")
        script.write_bytes(case.section("CLEAN").strip())
        run_process([php.cli, "-q", script], place, place.environment(php.minor))
        script.unlink(missing_ok=True)


def is_skipped(case: cases.Case, php: Php, place: Place) -> str | None:
    """Why the test says that it is not for this PHP."""
    if not case.section("SKIPIF").strip():
        return None
    test = (place.source / case.path).with_suffix(".php")
    place.remember(test)
    script = test.with_suffix(".skip.php")
    script.write_bytes(case.section("SKIPIF"))
    environment = place.environment(php.minor) | cases.environment_of(case, test.parent)
    if case.redirected:
        environment["REDIR_TEST_DIR"] = str(place.source / "ext/pdo/tests") + "/"
    try:
        output, _ = run_process([php.cgi, "-C", "-q", script], place, environment)
    finally:
        script.unlink(missing_ok=True)
        place.tidy(test)
    text = output.decode("latin-1").strip()
    if not text[:4].lower() == "skip":
        return None
    return " ".join(text[4:].split()).lstrip(":- ") or "it says so"


class PhpCgi:
    """Expected results, kept in a file."""

    def __init__(self, php: Php, judge: Judge, kept: Path) -> None:
        self.php, self.judge = php, judge
        kept.parent.mkdir(parents=True, exist_ok=True)
        self.kept = sqlite3.connect(kept, check_same_thread=False)
        self.kept.execute("CREATE TABLE IF NOT EXISTS expected (digest TEXT PRIMARY KEY, value BLOB)")
        self.lock = threading.Lock()

    def key(self, case: cases.Case) -> str:
        return hashlib.sha256(f"{self.php.digest}{case.digest()}".encode()).hexdigest()

    def find(self, case: cases.Case) -> Expected | None:
        with self.lock:
            row = self.kept.execute("SELECT value FROM expected WHERE digest = ?", [self.key(case)]).fetchone()
        if row is None:
            return None
        value = json.loads(zlib.decompress(row[0]))
        value["answer"] = value["answer"].encode("latin-1")
        value["headers"] = tuple(value["headers"])
        value.pop("varies", None)
        return Expected(**value)

    def keep(self, case: cases.Case, expected: Expected) -> None:
        value = {**expected.__dict__, "answer": expected.answer.decode("latin-1")}
        with self.lock, self.kept:
            self.kept.execute("REPLACE INTO expected VALUES (?, ?)", [self.key(case), zlib.compress(json.dumps(value).encode())])

    def run(self, case: cases.Case, place: Place) -> Expected:
        reason = not_for_a_worker(case, self.php, place)
        if reason is not None:
            return Expected(*reason)
        skipped = is_skipped(case, self.php, place)
        if skipped is not None:
            return Expected(SKIPPED, skipped)
        answer = ask_php_cgi(case, self.php, place)
        result = PASSED if self.judge.passes(case, answer) else FAILED
        return Expected(result, "", masked(answer.body, place.folder), tuple(answer.names()), answer.lost)
