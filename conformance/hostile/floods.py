"""Floods of HTTP/2 frames and slow clients: after each, others are answered, the server is still there, and its memory is bounded."""

import contextlib
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import servers
from servers import Outcome, Site

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
DATA, HEADERS, PRIORITY, RST_STREAM, SETTINGS, PUSH_PROMISE, PING, GOAWAY, WINDOW_UPDATE, CONTINUATION = range(10)
END_STREAM, END_HEADERS, ACK, PADDED = 0x1, 0x4, 0x1, 0x8
INITIAL_WINDOW_SIZE, HEADER_TABLE_SIZE, MAX_FRAME_SIZE = 4, 1, 5
# :method GET, :scheme http, :path /, and an authority.
REQUEST = b"\x82\x86\x84\x41\x01h"

# An attack sends for this long at most.
FLOOD_SECONDS = 10
# Its connection stays open until others were answered, at most for longer than they may wait for a worker.
HOLD_SECONDS = 90
# How much the server may have grown after an attack, in bytes: far below what the attacks send or ask for.
GROWTH = 64 << 20


def frame(kind: int, flags: int, stream: int, payload: bytes = b"") -> bytes:
    return struct.pack(">I", len(payload))[1:] + bytes([kind, flags]) + struct.pack(">I", stream) + payload


def settings(*pairs: tuple[int, int]) -> bytes:
    return frame(SETTINGS, 0, 0, b"".join(struct.pack(">HI", *pair) for pair in pairs))


def request(stream: int, flags: int = END_HEADERS | END_STREAM, block: bytes = REQUEST) -> bytes:
    return frame(HEADERS, flags, stream, block)


def literal(name: bytes, value: bytes, indexed: bool = False) -> bytes:
    def text(value: bytes) -> bytes:
        length = len(value)
        if length < 127:
            return bytes([length]) + value
        out, length = b"\x7f", length - 127
        while length >= 128:
            out, length = out + bytes([length & 0x7F | 0x80]), length >> 7
        return out + bytes([length]) + value

    return (b"\x40" if indexed else b"\x00") + text(name) + text(value)


def streams() -> Iterator[int]:
    return iter(range(1, 1 << 20, 2))


def rapid_reset() -> Iterator[bytes]:
    for stream in list(streams())[:20_000]:
        yield request(stream) + frame(RST_STREAM, 0, stream, struct.pack(">I", 8))


def made_you_reset() -> Iterator[bytes]:
    for stream in list(streams())[:20_000]:
        yield request(stream) + frame(WINDOW_UPDATE, 0, stream, struct.pack(">I", 0))


def continuation_flood() -> Iterator[bytes]:
    yield request(1, END_STREAM)
    for _ in range(2_000):
        yield frame(CONTINUATION, 0, 1, literal(b"x-a", b"a" * 8_000))


def empty_continuations() -> Iterator[bytes]:
    yield request(1, END_STREAM)
    for _ in range(100_000):
        yield frame(CONTINUATION, 0, 1)


def header_bomb() -> Iterator[bytes]:
    """One large entry of the dynamic table, named thousands of times (CVE-2016-6581)."""
    yield request(1, END_HEADERS | END_STREAM, REQUEST + literal(b"x-a", b"a" * 3_900, indexed=True))
    for stream in list(streams())[1:200]:
        yield request(stream, END_HEADERS | END_STREAM, REQUEST + b"\xbe" * 16_000)


def many_fields() -> Iterator[bytes]:
    for stream in list(streams())[:50]:
        yield request(stream, END_HEADERS | END_STREAM, REQUEST + literal(b"a", b"") * 4_000)


def repeated(piece: bytes, times: int) -> Callable[[], Iterator[bytes]]:
    return lambda: (piece for _ in range(times))


def empty_data() -> Iterator[bytes]:
    yield request(1, END_HEADERS)
    for _ in range(100_000):
        yield frame(DATA, 0, 1)


def padded_data() -> Iterator[bytes]:
    yield request(1, END_HEADERS)
    for _ in range(5_000):
        yield frame(DATA, PADDED, 1, b"\xff" + b"\0" * 255)


def no_credit() -> Iterator[bytes]:
    """20 streams of a page that is larger than the credit, which is none; then one byte at a time."""
    yield settings((INITIAL_WINDOW_SIZE, 0))
    for stream in list(streams())[:20]:
        yield request(stream)


def dripped_credit() -> Iterator[bytes]:
    yield from no_credit()
    for _ in range(500):
        for stream in list(streams())[:20]:
            yield frame(WINDOW_UPDATE, 0, stream, struct.pack(">I", 1))


def streams_beyond_the_limit() -> Iterator[bytes]:
    for stream in list(streams())[:5_000]:
        yield request(stream, END_HEADERS)


def dripped_bodies() -> Iterator[bytes]:
    post = b"\x83\x86\x84\x41\x01h" + literal(b"content-length", b"1000") + literal(b"content-type", b"application/x-www-form-urlencoded")
    for stream in list(streams())[:20]:
        yield request(stream, END_HEADERS, post) + frame(DATA, 0, stream, b"a")


def table_sizes() -> Iterator[bytes]:
    for size in range(50_000):
        yield settings((HEADER_TABLE_SIZE, size % 65_536))


ATTACKS: dict[str, Callable[[], Iterator[bytes]]] = {
    "rapid reset (CVE-2023-44487)": rapid_reset,
    "streams that the server has to reset (CVE-2025-8671)": made_you_reset,
    "CONTINUATION without end (CVE-2024-27316)": continuation_flood,
    "empty CONTINUATION frames": empty_continuations,
    "a field block that grows when decoded (CVE-2016-6581)": header_bomb,
    "4,000 fields a request": many_fields,
    "SETTINGS (CVE-2019-9515)": repeated(settings(), 50_000),
    "SETTINGS that change the table's size": table_sizes,
    "PING (CVE-2019-9512)": repeated(frame(PING, 0, 0, b"\0" * 8), 50_000),
    "PRIORITY (CVE-2019-9513)": repeated(frame(PRIORITY, 0, 1, b"\0\0\0\0\x10"), 100_000),
    "empty DATA (CVE-2019-9518)": empty_data,
    "padding": padded_data,
    "frames of unknown types": repeated(frame(0xEE, 0, 0, b"\0" * 64), 50_000),
    "WINDOW_UPDATE beyond 2^31": repeated(frame(WINDOW_UPDATE, 0, 0, struct.pack(">I", 0x7FFFFFFF)), 100),
    "RST_STREAM of streams that were never opened": repeated(frame(RST_STREAM, 0, 999, struct.pack(">I", 8)), 10_000),
    "PUSH_PROMISE from a client": repeated(frame(PUSH_PROMISE, END_HEADERS, 1, b"\0\0\0\x02" + REQUEST), 10),
    "no credit for 20 answers (CVE-2019-9517)": no_credit,
    "credit of one byte at a time (CVE-2019-9511)": dripped_credit,
    "more streams than allowed": streams_beyond_the_limit,
    "20 forms that never arrive whole": dripped_bodies,
}


def flood(port: int, attack: Callable[[], Iterator[bytes]], stop: threading.Event) -> None:
    """Attacks until everything is sent or the server has closed; then keeps the connection until `stop`."""
    deadline = time.monotonic() + FLOOD_SECONDS
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), servers.ANSWER_SECONDS) as connection:
        connection.settimeout(FLOOD_SECONDS)
        reader = threading.Thread(target=read_away, args=(connection,), daemon=True)
        connection.sendall(PREFACE + settings())
        reader.start()
        waiting = b""
        for piece in attack():
            waiting += piece
            if len(waiting) > 16_384:
                connection.sendall(waiting)
                waiting = b""
                if time.monotonic() > deadline:
                    break
        connection.sendall(waiting)
        stop.wait(HOLD_SECONDS)


def read_away(connection: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while connection.recv(65536):
            pass


def resident(pid: int) -> int:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * 4096


def ask(port: int) -> int:
    """The status of an ordinary request over HTTP/1.1."""
    with socket.create_connection(("127.0.0.1", port), HOLD_SECONDS) as connection:
        connection.sendall(b"GET /page HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n")
        replies, _rest, _closed = servers.read_replies(connection, HOLD_SECONDS)
    return replies[0].status if replies else 0


# 20 KB, as an ordinary page.
PAGE = "<?php header('Content-Encoding: identity'); echo str_repeat('page ', 4000);\n"


def run(folder: Path) -> Outcome:
    outcome = Outcome(what="floods of HTTP/2 frames, answers that are not read, forms that drip")
    site = Site(folder / "site")
    (site.folder / "public/index.php").write_text(PAGE)
    with servers.hearth(site) as (port, process):
        assert ask(port) == 200
        for name, attack in ATTACKS.items():
            before = resident(process.pid)
            stop = threading.Event()
            attacker = threading.Thread(target=flood, args=(port, attack, stop))
            attacker.start()
            # While it goes on, and once everything that it sends has arrived.
            statuses = [ask(port) for _ in range(5)]
            attacker.join(1)
            statuses += [ask(port) for _ in range(5)] if statuses == [200] * 5 else []
            stop.set()
            attacker.join()
            grown = resident(process.pid) - before if process.poll() is None else 0
            outcome.judge(process.poll() is None, f"{name}: the server is still there", process.returncode)
            outcome.judge(statuses == [200] * 10, f"{name}: others are answered", statuses)
            outcome.judge(grown < GROWTH, f"{name}: memory", f"{grown >> 20} MiB more")
            if process.poll() is not None:
                break
    return outcome
