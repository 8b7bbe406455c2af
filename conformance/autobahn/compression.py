"""Sections 12 and 13 of the case list: permessage-deflate with messages of many sizes, and with other parameters (RFC 7692).

The list takes its messages from five files that it brings; here they are text and bytes made from a fixed seed. Of the 1,000 messages of a case as
many are sent as have 8 MiB together, at least 16; `MESSAGES=1000` sends all.
"""

import os
import random
import zlib
from collections.abc import Iterator

from cases import Case, Run
from client import BINARY, CLOSE, PREFIX, SUFFIX, TAIL, TEXT
from trial import Trial, Wrong, message, pieces

SIZES = [(size, 0) for size in (16, 64, 256, 1024, 4096, 8192, 16384, 32768, 65536, 131072)] + \
        [(size, 256) for size in (8192, 16384, 32768, 65536, 131072)] + [(131072, size) for size in (1024, 4096, 32768)]
BUDGET = 8 << 20
DEFAULT = "permessage-deflate; client_no_context_takeover; client_max_window_bits"
# What the client offers, and whether some of it is what one compressed frame for all clients allows.
OFFERS = [
    ("default", DEFAULT, True),
    ("server_no_context_takeover", f"{DEFAULT}; server_no_context_takeover", True),
    ("server_max_window_bits=9", f"{DEFAULT}; server_max_window_bits=9", False),
    ("server_max_window_bits=15", f"{DEFAULT}; server_max_window_bits=15", True),
    ("server_no_context_takeover and server_max_window_bits=9", f"{DEFAULT}; server_no_context_takeover; server_max_window_bits=9", False),
    ("server_no_context_takeover and server_max_window_bits=15", f"{DEFAULT}; server_no_context_takeover; server_max_window_bits=15", True),
    ("three offers, the first two narrower", f"{DEFAULT}; server_no_context_takeover; server_max_window_bits=9, {DEFAULT}; server_no_context_takeover, {DEFAULT}", True),
]
KINDS = [("JSON", False), ("bitmap", True), ("prose", True), ("HTML", False), ("document", True)]


def corpus(kind: str, binary: bool) -> bytes:
    """About 400 kB that compress as such files do, the same in each run."""
    chance = random.Random(kind)
    if kind == "document":
        return chance.randbytes(400_000)
    if binary and kind == "bitmap":
        return bytes(min(255, max(0, int(chance.gauss(128 + at // 1600 % 64, 6)))) for at in range(262_144))
    words = ["".join(chance.choices("abcdefghijklmnopqrstuvwxyzäöü", k=chance.randint(2, 9))) for _ in range(2000)]
    mark = {"JSON": "{}: [{}], ", "HTML": "<p class={}>{}</p>", "prose": "{} {} "}[kind]
    return "".join(mark.format(chance.choice(words), chance.choice(words)) for _ in range(30_000)).encode()[:400_000]


def compressed(payload: bytes) -> bytes:
    compressor = zlib.compressobj(wbits=-15)
    return (compressor.compress(payload) + compressor.flush(zlib.Z_SYNC_FLUSH)).removesuffix(TAIL)


def count(size: int) -> int:
    wanted = int(os.environ.get("MESSAGES", 0))
    return wanted or max(16, min(1000, BUDGET // size))


def exchange(data: bytes, binary: bool, size: int, fragment: int) -> Run:
    def run(trial: Trial) -> str:
        if bool(trial.subject.extensions) != bool(trial.subject.offered_fits):
            raise Wrong(f"extensions {trial.subject.extensions!r}")
        deflated = bool(trial.subject.extensions)
        at = 0
        for number in range(count(size)):
            # In characters, as the list cuts texts, so that none is cut in two.
            payload = (data * 2)[at:at + size] if binary else (data * 2)[at:at + size].decode(errors="ignore").encode()
            at = (at + size) % len(data)
            whole = payload if binary else PREFIX + payload + SUFFIX
            body = compressed(whole) if deflated else whole
            parts = pieces(body, fragment) if fragment else [body]
            trial.send(message(parts, BINARY if binary else TEXT, 4 if deflated else 0))
            if binary:
                while trial.errors <= number:
                    if trial.read() == CLOSE:
                        raise Wrong(f"closed with {trial.subject.close_code}")
            else:
                trial.messages.clear()
                while not trial.messages:
                    trial.read_partner()
                if trial.messages != [payload]:
                    raise Wrong(f"message {number} came back changed")
        trial.messages.clear()
        return trial.finish(errors=count(size) if binary else 0)
    return run


def deflated() -> Iterator[tuple[Case, str, bool]]:
    """Each case with its offer, and whether the server should accept it."""
    for section, (kind, binary) in enumerate(KINDS, 1):
        data = corpus(kind, binary)
        for number, (size, fragment) in enumerate(SIZES, 1):
            what = f"{kind} of {size} bytes" + (f" in fragments of {fragment}" if fragment else "")
            yield (f"12.{section}.{number}", what, exchange(data, binary, size, fragment)), DEFAULT, True
    data = corpus(*KINDS[0])
    for section, (what, offer, fits) in enumerate(OFFERS, 1):
        for number, (size, fragment) in enumerate(SIZES, 1):
            shape = f"{size} bytes" + (f" in fragments of {fragment}" if fragment else "")
            yield (f"13.{section}.{number}", f"{what}: {shape}", exchange(data, False, size, fragment)), offer, fits
