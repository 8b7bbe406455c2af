"""Request smuggling through proxies: requests whose length the proxy and Hearth could read differently (RFC 9112, section 11.2).

Each attack goes through a proxy that keeps its connections to Hearth open, and hides `GET /smuggled-N` in a body. It succeeds when PHP runs that
request though the proxy never forwarded it as one, or when somebody else's next request through the proxy gets a wrong answer.
"""

import concurrent.futures
import contextlib
import json
import shutil
import socket
from collections.abc import Iterator
from pathlib import Path

import common
import servers
from servers import Outcome, Site

# An attack whose body never arrives completely ends after this time; it decides no verdict.
ATTACK_SECONDS = 0.5
THREADS = 16
VICTIMS = 2

CODINGS = [
    b"Transfer-Encoding: chunked", b"Transfer-Encoding : chunked", b"Transfer-Encoding:chunked", b"Transfer-Encoding:\tchunked", b"Transfer-Encoding:\x0bchunked",
    b"Transfer-Encoding: xchunked", b"Transfer-Encoding: chunkedx", b"Transfer-Encoding: Chunked", b"Transfer-Encoding: chunked ", b"Transfer-Encoding: \"chunked\"",
    b"Transfer-Encoding: 'chunked'", b"Transfer-Encoding: chunked, identity", b"Transfer-Encoding: identity, chunked", b"Transfer-Encoding: gzip, chunked",
    b"Transfer-Encoding: chunked, gzip", b"Transfer-Encoding: chunked;q=1", b"Transfer-Encoding: ,chunked", b"Transfer-Encoding: chunked,", b"Transfer-Encoding: cow",
    b"Transfer-Encoding: chunked\r\nTransfer-Encoding: cow", b"Transfer-Encoding: cow\r\nTransfer-Encoding: chunked", b"Transfer-Encoding: identity\r\nTransfer-Encoding: chunked",
    b"Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked", b"Transfer-Encoding:\r\nTransfer-Encoding: chunked", b"Transfer-Encoding:\r\n chunked",
    b"X-A: b\r\n Transfer-Encoding: chunked", b" Transfer-Encoding: chunked", b"X-A: b\rTransfer-Encoding: chunked", b"X-A: b\nTransfer-Encoding: chunked",
    b"Transfer_Encoding: chunked", b"Transfer-Encoding\x00: chunked", b"Transfer-Encoding: chunked\x00", b"\x00Transfer-Encoding: chunked", b"transfer-encoding: chunked",
    b"TRANSFER-ENCODING: CHUNKED", b"Transfer-\xc3\x89ncoding: chunked", b"Transfer-Encoding: chunk\xeed", b"Content-Encoding: chunked", b"TE: chunked", b"Foo: bar\r\n\r\nTransfer-Encoding: chunked",
    b"Connection: Transfer-Encoding\r\nTransfer-Encoding: chunked", b"Connection: close, Transfer-Encoding\r\nTransfer-Encoding: chunked", b"Connection: Content-Length\r\nTransfer-Encoding: chunked",
]
LENGTHS = [
    b"Content-Length : %d", b"Content-Length:%d", b"Content-Length: +%d", b"Content-Length: -%d", b"Content-Length: 0%d", b"Content-Length: 0x%d", b"Content-Length: %d;", b"Content-Length: %d,",
    b"Content-Length: %d, 0", b"Content-Length: 0, %d", b"Content-Length: %d\r\nContent-Length: 0", b"Content-Length: 0\r\nContent-Length: %d", b"Content-Length: %d\x00", b"Content-Length: \x0b%d",
    b"Content-Length: %d\x0b", b"Content-Length: \"%d\"", b"Content-Length: %d ", b"Content-Length:\t%d", b"Content-Length:\r\n %d", b"X-A: b\r\n Content-Length: %d", b"X-A: b\rContent-Length: %d",
    b"X-A: b\nContent-Length: %d", b"Content_Length: %d", b"Content-Length\x00: %d", b" Content-Length: %d", b"Content-Length: 1844674407370955161%d", b"Content-Length: %d.0", b"Content-Length: %de0",
    b"Connection: Content-Length\r\nContent-Length: %d", b"Expect: 100-continue\r\nContent-Length: %d", b"Expect: x\r\nContent-Length: %d", b"Upgrade: h2c\r\nConnection: Upgrade\r\nContent-Length: %d",
]
SIZES = [b"%x\r\n", b"%x\n", b"%x \r\n", b" %x\r\n", b"%x;a=b\r\n", b"%x;\n\r\n", b"0%x\r\n", b"0x%x\r\n", b"+%x\r\n", b"%x\x00\r\n", b"%x;a\rb\r\n", b"%x;a=\"\r\n\"\r\n", b"1000000000000000%x\r\n"]
METHODS = [b"POST", b"GET", b"DELETE", b"HEAD", b"OPTIONS"]


def attacks(number_of_first: int) -> Iterator[tuple[str, int, bytes]]:
    """Every attack with its name and number."""
    number = number_of_first

    def head(method: bytes, fields: bytes) -> bytes:
        return method + b" /attack HTTP/1.1\r\nHost: h\r\n" + fields + b"\r\n\r\n"

    def smuggled() -> bytes:
        return b"GET /smuggled-%d HTTP/1.1\r\nHost: h\r\n\r\n" % number

    for coding in CODINGS:
        # The proxy uses the length and Hearth the coding; and the other way round.
        inner = b"0\r\n\r\n" + smuggled()
        yield f"CL.TE {coding!r}", number, head(b"POST", b"Content-Length: %d\r\n" % len(inner) + coding) + inner
        number += 1
        inner = b"0\r\n\r\n" + smuggled()
        yield f"TE first, {coding!r}", number, head(b"POST", coding + b"\r\nContent-Length: %d" % len(inner)) + inner
        number += 1
        hidden = smuggled()
        size = b"%x\r\n" % len(hidden)
        yield f"TE.CL {coding!r}", number, head(b"POST", b"Content-Length: %d\r\n" % len(size) + coding) + size + hidden + b"\r\n0\r\n\r\n"
        number += 1
        yield f"TE alone {coding!r}", number, head(b"POST", coding) + b"0\r\n\r\n" + smuggled()
        number += 1
    for length in LENGTHS:
        for method in METHODS[:3]:
            hidden = smuggled()
            yield f"{method.decode()} {length!r}", number, head(method, length % len(hidden)) + hidden
            number += 1
    for size in SIZES:
        for last in [b"0\r\n\r\n", b"0\n\n", b"00\r\n\r\n", b"0\r\n"]:
            hidden = smuggled()
            body = size % len(hidden) + hidden + b"\r\n" + last
            yield f"size {size!r} last {last!r}", number, head(b"POST", b"Transfer-Encoding: chunked") + body
            number += 1
    for method in METHODS:
        hidden = smuggled()
        yield f"a body of {method.decode()}", number, head(method, b"Content-Length: %d" % len(hidden)) + hidden
        number += 1
    for target in [b"/a HTTP/1.1\r\nHost: h\r\n\r\nGET /smuggled-%d", b"/a\x00b", b"http://h/a", b"http://other/a", b"//other/a", b"*", b"h:80"]:
        filled = target % number if b"%d" in target else target
        yield f"target {target!r}", number, b"GET " + filled + b" HTTP/1.1\r\nHost: h\r\n\r\n"
        number += 1


HAPROXY = """
global
    log stderr local0 emerg
defaults
    mode http
    timeout connect 5s
    timeout client 20s
    timeout server 20s
    http-reuse always
frontend front
    bind 127.0.0.1:{port}
    default_backend hearth
backend hearth
    http-request set-header X-Forwarded-Proto http
    server hearth 127.0.0.1:{hearth}
"""

VARNISH = """vcl 4.1;
backend hearth {{ .host = "127.0.0.1"; .port = "{hearth}"; }}
sub vcl_recv {{ return (pass); }}
"""


@contextlib.contextmanager
def through_nginx(folder: Path, hearth: int) -> Iterator[int]:
    upstream = f"    upstream hearth {{ server 127.0.0.1:{hearth}; keepalive 4; }}"
    locations = """
        location / {
            proxy_pass http://hearth;
            proxy_http_version 1.1;
            proxy_set_header Connection "";
            proxy_set_header Host $host;
        }"""
    with servers.nginx(folder, locations, upstream) as port:
        yield port


@contextlib.contextmanager
def through_haproxy(folder: Path, hearth: int) -> Iterator[int]:
    port = common.free_port()
    configuration = folder / "haproxy.cfg"
    configuration.write_text(HAPROXY.format(port=port, hearth=hearth))
    with common.listening([shutil.which("haproxy"), "-db", "-f", configuration], port, folder / "haproxy.log"):
        yield port


@contextlib.contextmanager
def through_varnish(folder: Path, hearth: int) -> Iterator[int]:
    port = common.free_port()
    configuration = folder / "hearth.vcl"
    configuration.write_text(VARNISH.format(hearth=hearth))
    command = [shutil.which("varnishd"), "-F", "-n", folder / "varnish", "-a", f"127.0.0.1:{port}", "-f", configuration, "-s", "default,16m", "-j", "none"]
    with common.listening(command, port, folder / "varnish.log"):
        yield port


PROXIES = {"nginx": through_nginx, "haproxy": through_haproxy, "varnishd": through_varnish}


def exchange(port: int, request: bytes, seconds: float) -> bytes:
    data = b""
    with socket.create_connection(("127.0.0.1", port), servers.ANSWER_SECONDS) as connection:
        connection.settimeout(seconds)
        with contextlib.suppress(OSError):
            connection.sendall(request)
            while piece := connection.recv(65536):
                data += piece
    return data


def attempt(port: int, name: str, number: int, request: bytes) -> tuple[str, int, bytes, list[str]]:
    """Attacks, then asks as somebody else; says what of the others' answers was wrong."""
    answer = exchange(port, request, ATTACK_SECONDS)
    wrong = []
    for victim in range(VICTIMS):
        target = f"/victim-{number}-{victim}"
        asked = f"GET {target} HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n".encode()
        replies, rest = servers.parse_replies(exchange(port, asked, servers.ANSWER_SECONDS))
        if len(replies) != 1 or rest or replies[0].status != 200 or json.loads(replies[0].body)[1] != target:
            wrong.append(f"{target} got {[(reply.status, reply.body[:60]) for reply in replies]}")
    return name, number, answer, wrong


def run(folder: Path) -> Outcome:
    outcome = Outcome(what="request smuggling through proxies that keep their connections to Hearth")
    first = 0
    for proxy, through in PROXIES.items():
        if not shutil.which(proxy):
            outcome.notes.append(f"{proxy} is not installed")
            continue
        site = Site(folder / proxy)
        with servers.hearth(site, workers=4) as (hearth, process), through(site.folder, hearth) as port:
            with concurrent.futures.ThreadPoolExecutor(THREADS) as threads:
                attempts = [threads.submit(attempt, port, *attack) for attack in attacks(first)]
                attempted = [done.result() for done in attempts]
            ran = {target for _, target, _ in site.ran()}
            for name, number, answer, wrong in attempted:
                # Answered on the attacker's own connection: the proxy took it for the attacker's request, and forwarded it.
                known = f"/smuggled-{number}".encode() in answer
                if f"/smuggled-{number}" in ran and not known:
                    wrong.append("PHP ran the hidden request")
                outcome.judge(not wrong, f"{proxy}, {name}", wrong)
            outcome.judge(process.poll() is None, f"{proxy}: the server is still there", process.returncode)
        first += len(attempted)
    return outcome
