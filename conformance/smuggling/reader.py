"""Reads a stream of HTTP/1 requests by the grammar of RFC 9110 and 9112 and no more: the oracle for what a server may run.

It ends at the first byte that the grammar does not allow: a server may run the requests before that, and no other ones. What the RFCs let a server
accept beyond the grammar is read only if it is asked for by name (LENIENT).
"""

import re
from dataclasses import dataclass, field

TOKEN = rb"[!#$%&'*+.^_`|~0-9A-Za-z-]+"
REQUEST_LINE = re.compile(rb"(" + TOKEN + rb") ([!-~]+) HTTP/(1)\.([01])")
FIELD = re.compile(rb"(" + TOKEN + rb"):[ \t]*((?:[!-~\x80-\xff](?:[!-~\x80-\xff \t]*[!-~\x80-\xff])?)?)[ \t]*")
QUOTED = rb'"(?:[\t !#-\[\]-~\x80-\xff]|\\[\t -~\x80-\xff])*"'
CHUNK = re.compile(rb"([0-9A-Fa-f]+)((?:[ \t]*;[ \t]*" + TOKEN + rb"(?:[ \t]*=[ \t]*(?:" + TOKEN + rb"|" + QUOTED + rb"))?)*)\r\n")
LENIENT = {
    "LF": "a bare LF ends a line of a head or of trailers",
    "extension": "a chunk extension that is none, or white space in its place, up to CRLF",
    "length": "two lengths that are the same number in other digits",
    "Host": "a Host that is none, below an absolute target",
}
LENIENT_CHUNK = re.compile(rb"([0-9A-Fa-f]+)[ \t]*(?:;[^\r\n]*)?\r\n")
HOST = re.compile(rb"[A-Za-z0-9._~!$&'()*+,;=%-]*(?::\d*)?|\[[0-9A-Fa-f:.]+\](?::\d*)?")


@dataclass
class Request:
    method: str
    target: str
    body: bytes


@dataclass
class Stream:
    """What was read, and why reading has ended before the end."""

    lenient: str = ""
    requests: list[Request] = field(default_factory=list)
    problem: str = ""
    # The last request of the list may be refused instead: two lengths that agree, a length beside chunks, a method or target of an odd kind.
    choice: bool = False


class Problem(Exception):
    pass


def read(data: bytes, lenient: str = "") -> Stream:
    stream = Stream(lenient)
    at = 0
    try:
        while at < len(data):
            while data[at:at + 2] == b"\r\n" or (lenient == "LF" and data[at:at + 1] == b"\n"):
                at += 2 if data[at] == 13 else 1
            if at >= len(data):
                break
            at, closes = read_request(data, at, stream)
            if closes:
                break
    except Problem as problem:
        stream.problem = str(problem)
    return stream


def line(data: bytes, at: int, lenient: str) -> tuple[bytes, int]:
    """A line, and where the next one begins."""
    end = data.find(b"\n" if lenient == "LF" else b"\r\n", at)
    if end < 0:
        raise Problem("a line has no end")
    if lenient == "LF":
        return data[at:end].removesuffix(b"\r"), end + 1
    return data[at:end], end + 2


def read_request(data: bytes, at: int, stream: Stream) -> tuple[int, bool]:
    lenient = stream.lenient
    text, at = line(data, at, lenient)
    first = REQUEST_LINE.fullmatch(text)
    if not first:
        raise Problem("the request line")
    at, fields = read_fields(data, at, lenient)
    method, target, minor = first[1].decode(), first[2].decode(), first[4]
    lengths = [value for name, value in fields if name == b"content-length"]
    codings = [value.lower() for name, value in fields if name == b"transfer-encoding"]
    hosts = [value for name, value in fields if name == b"host"]
    checked = [] if lenient == "Host" and not target.startswith("/") else hosts
    if len(hosts) > 1 or (not hosts and minor == b"1") or not all(HOST.fullmatch(host) for host in checked):
        raise Problem("Host")
    connection = {option.strip().lower() for name, value in fields if name == b"connection" for option in value.split(b",")}
    closes = b"close" in connection or (minor == b"0" and b"keep-alive" not in connection)
    choice = minor == b"0" and not closes
    if codings:
        if codings != [b"chunked"] or minor == b"0":
            raise Problem("Transfer-Encoding")
        choice = choice or bool(lengths)
        # RFC 9112, 6.1: a server that reads such a request closes the connection behind it.
        closes = closes or bool(lengths)
        body, at = read_chunks(data, at, lenient)
    elif lengths:
        values = {value.strip(b" \t") for length in lengths for value in length.split(b",")}
        if lenient == "length" and all(value.isdigit() for value in values):
            values = {b"%d" % int(value) for value in values}
        if len(values) != 1 or not next(iter(values)).isdigit():
            raise Problem("Content-Length")
        choice = choice or len(lengths) > 1 or b"," in lengths[0]
        size = int(next(iter(values)))
        if size > len(data) - at:
            raise Problem("the body is not complete")
        body, at = data[at:at + size], at + size
    else:
        body = b""
    stream.requests.append(Request(method, target, body))
    stream.choice = stream.choice or choice
    return at, closes


def read_fields(data: bytes, at: int, lenient: str) -> tuple[int, list[tuple[bytes, bytes]]]:
    fields = []
    while True:
        text, at = line(data, at, lenient)
        if not text:
            return at, fields
        found = FIELD.fullmatch(text)
        if not found:
            raise Problem(f"the field line {text[:40]!r}")
        fields.append((found[1].lower(), found[2]))


def read_chunks(data: bytes, at: int, lenient: str) -> tuple[bytes, int]:
    body = b""
    while True:
        first = (LENIENT_CHUNK if lenient == "extension" else CHUNK).match(data, at)
        if not first:
            raise Problem("the size of a chunk")
        at, size = first.end(), int(first[1], 16)
        if size == 0:
            at, _ = read_fields(data, at, lenient)
            return body, at
        if data[at + size:at + size + 2] != b"\r\n":
            raise Problem("the end of a chunk")
        body, at = body + data[at:at + size], at + size + 2
