"""HTTP/2 requests that a server which turns them into HTTP/1 could split in two, or give another length: each is one stream of a connection of its own."""

import socket
import struct
from collections.abc import Iterator

from floods import ACK, DATA, END_HEADERS, END_STREAM, HEADERS, PREFACE, RST_STREAM, SETTINGS, frame, literal

GOAWAY, CONTINUATION = 7, 9
Field = tuple[bytes, bytes]
Attack = tuple[str, int, bytes, bytes]


def block(fields: list[Field]) -> bytes:
    return b"".join(literal(name, value) for name, value in fields)


def stream(fields: list[Field], body: bytes | None = None, trailers: list[Field] | None = None) -> bytes:
    ended = END_STREAM if body is None and trailers is None else 0
    data = PREFACE + frame(SETTINGS, 0, 0) + frame(HEADERS, END_HEADERS | ended, 1, block(fields))
    if body is not None:
        data += frame(DATA, 0 if trailers is not None else END_STREAM, 1, body)
    if trailers is not None:
        data += frame(HEADERS, END_HEADERS | END_STREAM, 1, block(trailers))
    return data


def attacks(first: int) -> Iterator[Attack]:
    """Name, number, the body that is sent, and the bytes of the connection."""
    number = first

    def pseudo(method: bytes = b"GET", path: bytes | None = None, authority: bytes = b"h", scheme: bytes = b"http") -> list[Field]:
        return [(b":method", method), (b":scheme", scheme), (b":path", path or b"/attack-%d" % number), (b":authority", authority)]

    def made(name: str, fields: list[Field], body: bytes | None = None, trailers: list[Field] | None = None) -> Attack:
        nonlocal number
        number += 1
        return name, number - 1, body or b"", stream(fields, body, trailers)

    for separator in [b"\r\n", b"\n", b"\r", b"\x00", b"\x0b", b"\x85", b"\t", b" "]:
        def split() -> bytes:
            return separator + b"X-Smuggled: 1" + separator + separator + b"GET /smuggled-%d HTTP/1.1" % number + separator + b"Host: h" + separator + separator

        yield made(f"in :path, {separator!r}", pseudo(path=b"/attack-%d HTTP/1.1" % number + split()))
        yield made(f"in :path alone, {separator!r}", pseudo(path=b"/attack-%d" % number + separator + b"x"))
        yield made(f"in :method, {separator!r}", pseudo(b"GET /attack-%d HTTP/1.1" % number + split()))
        yield made(f"in :method alone, {separator!r}", pseudo(b"GET" + separator + b"x"))
        yield made(f"in :authority, {separator!r}", pseudo(authority=b"h" + split()))
        yield made(f"in :scheme, {separator!r}", pseudo(scheme=b"http" + split()))
        yield made(f"in a value, {separator!r}", [*pseudo(), (b"x-a", b"b" + split())])
        yield made(f"in a name, {separator!r}", [*pseudo(), (b"x-a: b" + split() + b"x", b"b")])
        yield made(f"ends a value, {separator!r}", [*pseudo(), (b"x-a", b"b" + separator)])
        yield made(f"begins a value, {separator!r}", [*pseudo(), (b"x-a", separator + b"b")])
        yield made(f"begins a name, {separator!r}", [*pseudo(), (separator + b"x-a", b"b")])
        yield made(f"in a cookie, {separator!r}", [*pseudo(), (b"cookie", b"a=b" + split())])
        yield made(f"in a trailer, {separator!r}", pseudo(b"POST"), b"x", [(b"x-a", b"b" + split())])
    for name in [b"transfer-encoding", b"Transfer-Encoding", b"transfer-encoding ", b"transfer-encoding:", b"transfer-encoding: x\r\nx", b"connection", b"keep-alive", b"proxy-connection", b"upgrade", b"http2-settings"]:
        for value in [b"chunked", b"close", b"h2c", b"identity"]:
            hidden = b"0\r\n\r\nGET /smuggled-%d HTTP/1.1\r\nHost: h\r\n\r\n" % number
            yield made(f"{name!r}: {value.decode()}", [*pseudo(b"POST"), (name, value)], hidden)
    for value in [b"trailers", b"gzip", b"chunked", b"trailers, chunked"]:
        yield made(f"te: {value.decode()}", [*pseudo(b"POST"), (b"te", value)], b"0\r\n\r\nGET /smuggled-%d HTTP/1.1\r\nHost: h\r\n\r\n" % number)
    for value in [b"0", b"1", b"100", b"-1", b"+5", b"0x5", b"5, 5", b"5,6", b"", b"x", b"05", b"5 ", b" 5", b"18446744073709551621", b"5\r\n"]:
        yield made(f"content-length: {value!r}", [*pseudo(b"POST"), (b"content-length", value)], b"GET /smuggled-%d HTTP/1.1\r\nHost: h\r\n\r\n" % number)
        yield made(f"content-length: {value!r} of 5", [*pseudo(b"POST"), (b"content-length", value)], b"hello")
        yield made(f"content-length: {value!r} and 5", [*pseudo(b"POST"), (b"content-length", value), (b"content-length", b"5")], b"hello")
        yield made(f"content-length: {value!r}, GET without a body", [*pseudo(), (b"content-length", value)])
        yield made(f"content-length: {value!r} as a trailer", pseudo(b"POST"), b"hello", [(b"content-length", value)])
    yield made("transfer-encoding as a trailer", pseudo(b"POST"), b"hello", [(b"transfer-encoding", b"chunked")])
    yield made("a pseudo field as a trailer", pseudo(b"POST"), b"hello", [(b":path", b"/smuggled-%d" % number)])
    for path in [b"", b"smuggled", b"*", b"http://h/attack", b"//other/attack", b"/a b", b"/a#b", b"\\attack", b"?a", b"/attack\x7f", b"/attack\xff"]:
        yield made(f":path {path!r}", [(b":method", b"GET"), (b":scheme", b"http"), (b":path", path), (b":authority", b"h")])
    for authority in [b"", b"a b", b"a/b", b"user@h", b"h:x", b"h\x00", b"h, other", b"h/../", b"[", b"\xff"]:
        yield made(f":authority {authority!r}", pseudo(authority=authority))
    for host in [b"h", b"other", b"", b"a b", b"h\r\nX-Smuggled: 1"]:
        yield made(f"host {host!r} beside :authority", [*pseudo(), (b"host", host)])
        yield made(f"host {host!r} twice", [*pseudo()[:3], (b"host", b"h"), (b"host", host)])
    fields = pseudo()
    for index, (name, value) in enumerate(fields):
        yield made(f"{name.decode()} twice", [*pseudo(), (name, value)])
        yield made(f"without {name.decode()}", [field for at, field in enumerate(pseudo()) if at != index])
        yield made(f"{name.decode()} behind a field", [field for at, field in enumerate(pseudo()) if at != index] + [(b"x-a", b"b"), (name, value)])
        yield made(f"{name.decode().upper()} in capitals", [field for at, field in enumerate(pseudo()) if at != index] + [(name.upper(), value)])
        yield made(f"{name.decode()} that is empty", [field if at != index else (name, b"") for at, field in enumerate(pseudo())])
    for name in [b":status", b":protocol", b":unknown", b":", b"", b"X-A", b"x a", b"x:a", b"x\x7f", b"x\xc3\xa4", b"x(", b"content_length"]:
        yield made(f"a field named {name!r}", [*pseudo(), (name, b"5")])
    for method in [b"CONNECT", b"TRACE", b"", b"get", b"G T", b"G\x00T", b"(", b"PRI"]:
        yield made(f":method {method!r}", pseudo(method))
    yield made("CONNECT as RFC 9113 has it", [(b":method", b"CONNECT"), (b":authority", b"h:80")])
    yield made("expect with a body", [*pseudo(b"POST"), (b"expect", b"100-continue")], b"hello")


def exchange(port: int, data: bytes, seconds: float) -> bool:
    """Sends an attack, and reads until its stream or the connection ends. Gives whether one of them did in time."""
    with socket.create_connection(("127.0.0.1", port), seconds) as connection:
        connection.settimeout(seconds)
        received = b""
        try:
            connection.sendall(data)
            while piece := connection.recv(65536):
                received += piece
                while len(received) >= 9 and len(received) >= 9 + (length := int.from_bytes(received[:3], "big")):
                    kind, flags, number = received[3], received[4], struct.unpack(">I", received[5:9])[0] & 0x7FFFFFFF
                    received = received[9 + length:]
                    if kind == SETTINGS and not flags & ACK:
                        connection.sendall(frame(SETTINGS, ACK, 0))
                    if kind in (RST_STREAM, GOAWAY) or (number == 1 and kind in (DATA, HEADERS) and flags & END_STREAM):
                        return True
        except TimeoutError:
            return False
        except OSError:
            pass
    return True
