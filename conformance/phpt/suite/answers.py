"""Answers of PHP, made comparable: without headers, without the frames below the test, without what differs between two folders."""

import base64
import json
import re
import subprocess
import threading
from dataclasses import dataclass, field
from pathlib import Path

from .cases import Case

HERE = Path(__file__).resolve().parent
CALL = r"(?:call_user_func|hearth_handle_request)"
# The frames between a test and `{main}`: see phpt.php.
FRAMES = re.compile(rb"^#\d+ [^\n]*phptcase\d+\.php\(1\): require\([^\n]*\)\n#\d+ \[internal function\]: spl_autoload\([^\n]*\)\n"
                    rb"#\d+ \[internal function\]: PhptStart\d+::cases\(\)\n#\d+ [^\n]*(?:once|loop)\.php\(5\): " + CALL.encode() + rb"\([^\n]*\)\n?"
                    rb"(?:#(\d+) \{main\})?", re.MULTILINE)
FRAME_COUNT = 4
NOT_OF_PHP = {"date", "server", "connection", "content-length", "transfer-encoding", "keep-alive", "x-powered-by", "status", "vary", "accept-ranges", "x-request-id"}


@dataclass
class Answer:
    body: bytes
    headers: list[tuple[str, str]] = field(default_factory=list)
    lost: str = ""  # why there is none

    def names(self) -> list[str]:
        return sorted(name.lower() for name, _ in self.headers if name.lower() not in NOT_OF_PHP)


def without_frames(body: bytes) -> bytes:
    return FRAMES.sub(lambda found: b"#%d {main}" % (int(found[1]) - FRAME_COUNT) if found[1] else b"", body)


def plain(body: bytes) -> bytes:
    """What run-tests.php compares."""
    return without_frames(body.strip(b" \t\n\r\0\x0b")).replace(b"\r\n", b"\n")


def masked(body: bytes, folder: Path) -> bytes:
    """The body without what differs between two processes of the same PHP in two folders."""
    text = plain(body).replace(str(folder).encode(), b"FOLDER")
    return re.sub(rb"phptcase\d+|PhptCase\d+|PhptStart\d+|phptstart\d+", b"PHPT", text.replace(b'string(21) "hearth_handle_request"', b'string(14) "call_user_func"').replace(b"hearth_handle_request", b"call_user_func").replace(b"loop.ph", b"once.ph"))


def loosely(body: bytes) -> bytes:
    """Without numbers: clocks, process ids, ports, addresses."""
    return re.sub(rb"0x[0-9a-f]+|\b(?=[a-f]*\d)[0-9a-f]{4,}\b|[0-9a-f]{8,}|\d+(?:\.\d+)?(?:E[+-]?\d+)?", b"N", body)


class Judge:
    """A PHP process that compares outputs with what tests expect."""

    def __init__(self, php: str) -> None:
        self.process = subprocess.Popen([php, "-n", HERE / "judge.php"], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self.lock = threading.Lock()

    def passes(self, case: Case, answer: Answer) -> bool:
        if answer.lost:
            return False
        if case.has("EXPECTHEADERS"):
            wanted = [line.split(":", 1) for line in case.section("EXPECTHEADERS").decode("latin-1").splitlines() if ":" in line]
            sent = {name.lower(): value.strip() for name, value in answer.headers}
            if any(sent.get(name.strip().lower()) != value.strip() for name, value in wanted):
                return False
        kind = next(kind for kind in ("EXPECTF", "EXPECTREGEX", "EXPECT") if case.has(kind))
        asked = {"kind": kind, "wanted": base64.b64encode(case.section(kind)).decode(), "output": base64.b64encode(plain(answer.body)).decode()}
        with self.lock:
            self.process.stdin.write(json.dumps(asked).encode() + b"\n")
            self.process.stdin.flush()
            return self.process.stdout.readline() == b"1\n"

    def close(self) -> None:
        self.process.stdin.close()
        self.process.wait()
