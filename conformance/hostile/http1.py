"""Raw HTTP/1.1 requests that a careful server refuses, or reads in exactly one way (RFC 9110, RFC 9112).

Each case is a request, followed on the same connection by `GET /after`. The PHP script behind the server writes down every request that it
runs, so a case is judged by what was answered and by what was run. `/smuggled` stands where a wrong reading finds a second request.
"""

from dataclasses import dataclass

SMUGGLED = b"GET /smuggled HTTP/1.1\r\nHost: h\r\n\r\n"
CLIENT_ERRORS = range(400, 600)


@dataclass(frozen=True)
class Case:
    """One request with the readings of it that are right."""

    name: str
    request: bytes
    # The request that PHP may run: (method, target, body); None: PHP must not run.
    run: tuple[str, str, bytes] | None
    # Statuses that refuse it; empty: it has to be served.
    refused: range | tuple[int, ...] = ()
    # The client closes its sending side behind the request, and sends no `/after`.
    half_close: bool = False


def get(line: bytes, fields: bytes = b"Host: h\r\n") -> bytes:
    return line + b"\r\n" + fields + b"\r\n"


def post(fields: bytes, body: bytes = b"hello") -> bytes:
    return b"POST /p HTTP/1.1\r\nHost: h\r\n" + fields + b"\r\n" + body


def refuse(name: str, request: bytes, statuses=CLIENT_ERRORS) -> Case:
    return Case(name, request, None, statuses)


def serve(name: str, request: bytes, method="GET", target="/", body=b"") -> Case:
    return Case(name, request, (method, target, body))


def either(name: str, request: bytes, method="GET", target="/", body=b"") -> Case:
    """RFC 9112 lets a server choose between refusing it and reading it in one way."""
    return Case(name, request, (method, target, body), CLIENT_ERRORS)


def request_lines():
    yield serve("an empty line comes first", b"\r\n" + get(b"GET / HTTP/1.1"))
    yield either("lines end with a bare LF", b"GET / HTTP/1.1\nHost: h\n\n")
    yield either("a method in small letters", get(b"get / HTTP/1.1"), "get")
    yield either("a method that no RFC defines", get(b"FOO / HTTP/1.1"), "FOO")
    yield refuse("no method", get(b" / HTTP/1.1"))
    yield refuse("a space before the method", get(b" GET / HTTP/1.1"))
    for character in b"@(),;:\\\"/[]?={}\x00\x01\x0b\x7f\x80\xff":
        yield refuse(f"byte {character:#04x} in the method", get(b"G" + bytes([character]) + b"T / HTTP/1.1"))
    for name, separator in [("two spaces", b"  "), ("a tab", b"\t"), ("a vertical tab", b"\x0b"), ("a carriage return", b"\r")]:
        yield either(f"{name} before the target", get(b"GET" + separator + b"/ HTTP/1.1"))
        yield either(f"{name} behind the target", get(b"GET /" + separator + b"HTTP/1.1"))
    yield refuse("no version", get(b"GET /"), (400, 505))
    for version in [b"HTTP/0.9", b"HTTP/1.2", b"HTTP/2.0", b"HTTP/9.9", b"HTTP/1", b"HTTP/01.1", b"HTTP/1.10", b"HTTP/1.1x", b"http/1.1",
                    b"HTTP 1.1", b"HTTP/1,1", b"HTTPS/1.1", b"XTTP/1.1", b"HTTP/-1.1", b"HTTP/1.1/"]:
        yield either(f"version {version.decode()}", get(b"GET / " + version))
    yield either("a space behind the version", get(b"GET / HTTP/1.1 "))
    yield refuse("a NUL behind the version", get(b"GET / HTTP/1.1\x00"))


def targets():
    yield serve("absolute form", get(b"GET http://h/a?b HTTP/1.1"), target="/a?b")
    yield serve("absolute form without a path", get(b"GET http://h HTTP/1.1"))
    yield serve("absolute form whose host is not that of Host", get(b"GET http://other/ HTTP/1.1"))
    yield refuse("absolute form with a user", get(b"GET http://user@h/ HTTP/1.1"))
    yield refuse("absolute form with a password", get(b"GET http://user:password@h/ HTTP/1.1"))
    yield refuse("absolute form without a host", get(b"GET http:///a HTTP/1.1"))
    yield either("absolute form with a port that is none", get(b"GET http://h:99999/ HTTP/1.1"))
    for target in [b"h", b"intern.example", b"h:80", b"intern.example:443"]:
        yield refuse(f"authority form {target.decode()}", get(b"GET " + target + b" HTTP/1.1"))
    yield refuse("CONNECT to another host", get(b"CONNECT other.example:443 HTTP/1.1"), (400, 405, 501))
    yield refuse("CONNECT with a path", get(b"CONNECT / HTTP/1.1"), (400, 405, 501))
    yield refuse("TRACE", get(b"TRACE / HTTP/1.1"), (405, 501))
    yield refuse("asterisk form of GET", get(b"GET * HTTP/1.1"))
    yield Case("asterisk form of OPTIONS", get(b"OPTIONS * HTTP/1.1"), None, (200, 204, 400, 405))
    yield refuse("an empty target", get(b"GET  HTTP/1.1"))
    yield refuse("a target without a slash", get(b"GET foo/bar HTTP/1.1"))
    yield refuse("a space in the target", get(b"GET /a b HTTP/1.1"))
    for character in b"\x00\x01\x08\x0b\x0c\x1f\x7f":
        yield refuse(f"byte {character:#04x} in the target", get(b"GET /a" + bytes([character]) + b"b HTTP/1.1"))
    yield either("a fragment in the target", get(b"GET /a#b HTTP/1.1"), target="/a")
    for path in [b"/%00", b"/a%00.php", b"/%zz", b"/%", b"/%2", b"/%c0%ae%c0%ae/etc/passwd"]:
        yield either(f"path {path.decode()}", get(b"GET " + path + b" HTTP/1.1"), target=path.decode())
    for path in [b"/..", b"/../../etc/passwd", b"/%2e%2e/%2e%2e/etc/passwd", b"/..%2f..%2fetc/passwd", b"/..%5c..%5cetc/passwd",
                 b"/a/../../etc/passwd", b"//etc/passwd", b"/./././", b"/.%2e/", b"/\\..\\..\\etc\\passwd"]:
        yield either(f"path {path.decode()}", get(b"GET " + path + b" HTTP/1.1"), target=path.decode())
    for path in [b"/.env", b"/.git/config", b"/%2eenv", b"/.EnV", b"/secret.php.bak", b"/secret.phpold", b"/secret.phpbak", b"/secret.phpt",
                 b"/secret.php~", b"/secret.phps", b"/secret.PHP", b"/secret.phtml", b"/hearth.toml", b"/secret.php%20", b"/secret.php.",
                 b"/secret.php::$DATA", b"/secret.php%0a", b"/.htaccess"]:
        yield Case(f"file {path.decode()}", get(b"GET " + path + b" HTTP/1.1"), ("GET", path.decode(), b""), (400, 403, 404))
    yield refuse("a target of 20,000 bytes", get(b"GET /" + b"a" * 20_000 + b" HTTP/1.1"), (400, 414, 431))


def hosts():
    yield refuse("no Host", get(b"GET / HTTP/1.1", b""))
    yield refuse("two Hosts", get(b"GET / HTTP/1.1", b"Host: h\r\nHost: h\r\n"))
    yield refuse("two Hosts that differ", get(b"GET / HTTP/1.1", b"Host: h\r\nHost: other\r\n"))
    yield either("two Hosts below an absolute target", get(b"GET http://h/ HTTP/1.1", b"Host: h\r\nHost: other\r\n"))
    yield either("an empty Host", get(b"GET / HTTP/1.1", b"Host: \r\n"))
    for host in [b"a b", b"a/b", b"user@a", b"a,b", b"a\\b", b"a?b", b"a#b", b"<script>", b"a\"b", b"a'b", b"a;b", b"\xc3\xa4", b"a\x00b", b"a\x7f"]:
        yield refuse(f"Host {host!r}", get(b"GET / HTTP/1.1", b"Host: " + host + b"\r\n"))
    for host in [b"h:x", b"h:99999999", b"h:-1", b"[::1", b"::1", b"h:80:80", b".", b"..", b"h."]:
        yield either(f"Host {host.decode()}", get(b"GET / HTTP/1.1", b"Host: " + host + b"\r\n"))
    yield serve("HTTP/1.0 without a Host", b"GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n")


def fields():
    for name, line in [
        ("a space before the colon", b"X-A : b"), ("a tab before the colon", b"X-A\t: b"), ("no colon", b"X-A"), ("no name", b": b"),
        ("a line that is folded", b"X-A: b\r\n c"), ("a line folded by a tab", b"X-A: b\r\n\tc"), ("a NUL in a value", b"X-A: b\x00c"),
        ("a carriage return in a value", b"X-A: b\rc"), ("a NUL in a name", b"X-\x00A: b"), ("a parenthesis in a name", b"X(A): b"),
        ("a letter beyond ASCII in a name", b"X-\xc3\xa4: b"), ("a space in a name", b"X A: b"), ("a name in quotes", b'"X-A": b'),
        ("a bare carriage return between fields", b"X-A: b\rX-B: c"), ("a control byte in a name", b"X-\x01A: b"),
        ("two carriage returns at a line's end", b"X-A: b\r"),
    ]:
        yield refuse(name, get(b"GET / HTTP/1.1", b"Host: h\r\n" + line + b"\r\n"))
    yield refuse("a first field that begins with a space", get(b"GET / HTTP/1.1", b" X-A: b\r\nHost: h\r\n"))
    for name, line in [
        ("a tab around a value", b"X-A:\tb\t"), ("an empty value", b"X-A:"), ("bytes beyond ASCII in a value", b"X-A: \xc3\xa4\xff"),
        ("a name with an underscore", b"Content_Length: 5"), ("Transfer_Encoding", b"Transfer_Encoding: chunked"), ("Proxy", b"Proxy: http://evil.example"),
        ("Connection names Host", b"Connection: Host"), ("Connection names Content-Length", b"Connection: Content-Length"),
        ("an upgrade to h2c", b"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAAQCAAAAAAIAAAAA"),
        ("an upgrade to something unknown", b"Connection: Upgrade\r\nUpgrade: foo"), ("80 fields", b"\r\n".join(b"X-%d: a" % i for i in range(80))),
        ("a name that is a symbol", b"!#$%&'*+-.^`|~: b"),
    ]:
        yield serve(name, get(b"GET / HTTP/1.1", b"Host: h\r\n" + line + b"\r\n"))
    yield either("a control byte in a value", get(b"GET / HTTP/1.1", b"Host: h\r\nX-A: b\x01c\r\n"))
    yield refuse("500 fields", get(b"GET / HTTP/1.1", b"Host: h\r\n" + b"".join(b"X-%d: a\r\n" % i for i in range(500))), (400, 431))
    yield refuse("a field of 100,000 bytes", get(b"GET / HTTP/1.1", b"Host: h\r\nX-A: " + b"a" * 100_000 + b"\r\n"), (400, 431))
    yield refuse("a name of 100,000 bytes", get(b"GET / HTTP/1.1", b"Host: h\r\n" + b"a" * 100_000 + b": b\r\n"), (400, 431))


def lengths():
    for value in [b"+5", b"-5", b"0x5", b"5 5", b"5;", b"5,", b",5", b"5, 6", b"5.0", b"5e0", b'"5"', b"'5'", b"5\x0b", b"\x0b5", b"5\x00", b"", b"x",
                  b"\xd9\xa5", b"18446744073709551615", b"18446744073709551616", b"18446744073709551621", b"9223372036854775808",
                  b"1" * 30, b"5\x0c", b"0_5", b"5_", b"0b101", b"0o5", b"5\t5"]:
        yield refuse(f"Content-Length {value[:24]!r}", post(b"Content-Length: " + value + b"\r\n", b"hello" + SMUGGLED))
    for value in [b"05", b" 5", b"5 ", b"\t5\t", b"000000000000000000000000005"]:
        yield either(f"Content-Length {value!r}", post(b"Content-Length: " + value + b"\r\n"), "POST", "/p", b"hello")
    for first, second in [(b"5", b"6"), (b"5", b"0"), (b"0", b"5"), (b"5", b"+5"), (b"5", b""), (b"", b"5"), (b"5", b"x")]:
        yield refuse(f"Content-Length {first!r} and {second!r}",
                     post(b"Content-Length: " + first + b"\r\nContent-Length: " + second + b"\r\n", b"hello" + SMUGGLED))
    yield either("Content-Length twice the same", post(b"Content-Length: 5\r\nContent-Length: 5\r\n"), "POST", "/p", b"hello")
    yield either("Content-Length 5, 5", post(b"Content-Length: 5, 5\r\n"), "POST", "/p", b"hello")
    yield serve("GET with a body", b"GET /p HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\n\r\nhello", target="/p", body=b"hello")
    yield serve("DELETE with a body", b"DELETE /p HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\n\r\nhello", "DELETE", "/p", b"hello")
    yield serve("POST without a length", post(b"", b""), "POST", "/p")
    yield serve("POST whose length is 0", post(b"Content-Length: 0\r\n", b""), "POST", "/p")
    yield serve("a field that begins like Content-Length", post(b"Content-Lengthx: 5\r\n", b""), "POST", "/p")
    yield refuse("Content-Length with a space before the colon", post(b"Content-Length : 5\r\n", b"hello" + SMUGGLED))
    yield refuse("Content-Length behind a fold", post(b"X-A: b\r\n Content-Length: 5\r\n", SMUGGLED))


CHUNKED = b"5\r\nhello\r\n0\r\n\r\n"


def codings():
    for value in [b"chunked", b"Chunked", b"CHUNKED", b"chunked ", b"\tchunked"]:
        yield serve(f"Transfer-Encoding {value!r}", post(b"Transfer-Encoding: " + value + b"\r\n", CHUNKED), "POST", "/p", b"hello")
    for value in [b"xchunked", b"chunkedx", b"chunked, identity", b"identity", b"identity, chunked", b"gzip", b"gzip, chunked", b"deflate, chunked",
                  b"chunked, gzip", b"chunked, chunked", b"chunked;q=1", b'"chunked"', b"'chunked'", b"\x0bchunked", b"chunked\x0b", b"\x00chunked",
                  b"chunked\x00", b"chu nked", b"ch\xc3\xbcnked", b"x", b"", b",", b"chunked,", b",chunked", b"chunked;", b"=chunked", b"chunked\xa0",
                  b"compress", b"trailers", b"chunke", b"cow"]:
        yield refuse(f"Transfer-Encoding {value!r}", post(b"Transfer-Encoding: " + value + b"\r\n", CHUNKED + SMUGGLED))
    for name, lines in [
        ("twice chunked", b"Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n"),
        ("chunked and gzip", b"Transfer-Encoding: chunked\r\nTransfer-Encoding: gzip\r\n"),
        ("gzip and chunked", b"Transfer-Encoding: gzip\r\nTransfer-Encoding: chunked\r\n"),
        ("empty and chunked", b"Transfer-Encoding:\r\nTransfer-Encoding: chunked\r\n"),
        ("identity and chunked", b"Transfer-Encoding: identity\r\nTransfer-Encoding: chunked\r\n"),
        ("chunked and unknown", b"Transfer-Encoding: chunked\r\nTransfer-Encoding: cow\r\n"),
    ]:
        yield refuse(f"Transfer-Encoding {name}", post(lines, CHUNKED + SMUGGLED))
    for name, line in [("before the colon", b"Transfer-Encoding : chunked"), ("folded", b"Transfer-Encoding:\r\n chunked"),
                       ("behind a fold", b"X-A: b\r\n Transfer-Encoding: chunked"), ("behind a carriage return", b"X-A: b\rTransfer-Encoding: chunked"),
                       ("at the line's beginning", b" Transfer-Encoding: chunked")]:
        yield refuse(f"Transfer-Encoding, white space {name}", post(line + b"\r\n", CHUNKED + SMUGGLED))
    for name, lines in [("first", b"Transfer-Encoding: chunked\r\nContent-Length: 5\r\n"), ("second", b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n")]:
        yield either(f"Content-Length beside chunked, which is {name}", post(lines, b"0\r\n\r\n" + SMUGGLED), "POST", "/p")
        yield either(f"Content-Length beside chunked with data, which is {name}", post(lines, CHUNKED + SMUGGLED), "POST", "/p", b"hello")
    yield refuse("chunked in HTTP/1.0", b"POST /p HTTP/1.0\r\nHost: h\r\nConnection: keep-alive\r\nTransfer-Encoding: chunked\r\n\r\n" + CHUNKED + SMUGGLED)


def chunks():
    def chunked(body: bytes) -> bytes:
        return post(b"Transfer-Encoding: chunked\r\n", body)

    for name, body in [
        ("zeros before the size", b"0005\r\nhello\r\n0\r\n\r\n"), ("the last size is 000", b"5\r\nhello\r\n000\r\n\r\n"),
        ("an extension", b"5;a=b\r\nhello\r\n0\r\n\r\n"), ("an extension in quotes", b'5;a="b;c"\r\nhello\r\n0\r\n\r\n'),
        ("an extension of the last chunk", b"5\r\nhello\r\n0;a=b\r\n\r\n"), ("a trailer", b"5\r\nhello\r\n0\r\nX-A: b\r\n\r\n"),
        ("a trailer that names a length", b"5\r\nhello\r\n0\r\nContent-Length: 50\r\n\r\n"),
        ("a trailer that names a host", b"5\r\nhello\r\n0\r\nHost: other\r\n\r\n"),
        ("a trailer that names a coding", b"5\r\nhello\r\n0\r\nTransfer-Encoding: gzip\r\n\r\n"),
        ("chunks of a byte", b"".join(b"1\r\n%c\r\n" % c for c in b"hello") + b"0\r\n\r\n"), ("no extension and no trailer", CHUNKED),
    ]:
        yield serve(name, chunked(body), "POST", "/p", b"hello")
    for name, body in [
        ("white space behind the size", b"5 \r\nhello\r\n0\r\n\r\n"), ("a tab behind the size", b"5\t\r\nhello\r\n0\r\n\r\n"),
        ("white space before an extension", b"5 ;a=b\r\nhello\r\n0\r\n\r\n"),
    ]:
        yield either(name, chunked(body), "POST", "/p", b"hello")
    for name, body in [
        ("a size with 0x", b"0x5\r\nhello\r\n0\r\n\r\n"), ("a size with a sign", b"+5\r\nhello\r\n0\r\n\r\n"), ("a negative size", b"-5\r\nhello\r\n0\r\n\r\n"),
        ("white space before the size", b" 5\r\nhello\r\n0\r\n\r\n"), ("no size", b"\r\nhello\r\n0\r\n\r\n"), ("a size that is none", b"g\r\nhello\r\n0\r\n\r\n"),
        ("a size of 17 digits", b"10000000000000005\r\nhello\r\n0\r\n\r\n"), ("a size with an underscore", b"0_5\r\nhello\r\n0\r\n\r\n"),
        ("more data than the size", b"4\r\nhello\r\n0\r\n\r\n"), ("no line end behind the data", b"5\r\nhello0\r\n\r\n"),
        ("a bare LF behind the size", b"5\nhello\r\n0\r\n\r\n"), ("a bare LF behind the data", b"5\r\nhello\n0\r\n\r\n"),
        ("a bare carriage return behind the size", b"5\rXhello\r\n0\r\n\r\n"), ("a bare LF in an extension", b"5;a\nhello\r\n0\r\n\r\n"),
        ("a NUL in the size", b"5\x00\r\nhello\r\n0\r\n\r\n"), ("a size in commas", b"5,5\r\nhello\r\n0\r\n\r\n"),
        ("a line end within the size", b"\r\n5\r\nhello\r\n0\r\n\r\n"), ("a negative last size", b"5\r\nhello\r\n-0\r\n\r\n"),
        ("an extension of 100,000 bytes", b"5;" + b"a" * 100_000 + b"\r\nhello\r\n0\r\n\r\n"),
        ("a trailer of 200,000 bytes", b"5\r\nhello\r\n0\r\nX-A: " + b"a" * 200_000 + b"\r\n\r\n"),
        ("a trailer without a colon", b"5\r\nhello\r\n0\r\nX-A\r\n\r\n"),
        ("a fractional size", b"5.0\r\nhello\r\n0\r\n\r\n"), ("a size beyond ASCII", b"\xd9\xa5\r\nhello\r\n0\r\n\r\n"),
    ]:
        yield refuse(name, chunked(body + SMUGGLED))
    # A size that fits 64 bits promises a body that never comes whole.
    for size in [b"FFFFFFFFFFFFFFFF", b"8000000000000000", b"7FFFFFFFFFFFFFFF"]:
        request = chunked(size + b"\r\nhello\r\n0\r\n\r\n" + SMUGGLED)
        yield Case(f"a size of {size.decode()}", request, None, CLIENT_ERRORS, half_close=True)


def expectations():
    yield serve("Expect: 100-continue with the body behind it", post(b"Expect: 100-continue\r\nContent-Length: 5\r\n"), "POST", "/p", b"hello")
    yield serve("Expect: 100-Continue", post(b"Expect: 100-Continue\r\nContent-Length: 5\r\n"), "POST", "/p", b"hello")
    yield either("Expect something unknown", post(b"Expect: 200-maybe\r\nContent-Length: 5\r\n"), "POST", "/p", b"hello")
    yield serve("Expect without a body", get(b"GET / HTTP/1.1", b"Host: h\r\nExpect: 100-continue\r\n"))


def cut_short():
    whole = post(b"Content-Length: 5\r\n")
    for length in [1, 4, 6, 17, 30, len(whole) - 6, len(whole) - 5, len(whole) - 1]:
        yield Case(f"a request cut after {length} bytes", whole[:length], None, CLIENT_ERRORS, half_close=True)
    for body in [b"", b"5", b"5\r\n", b"5\r\nhel", b"5\r\nhello", b"5\r\nhello\r\n", b"5\r\nhello\r\n0", b"5\r\nhello\r\n0\r\n"]:
        yield Case(f"chunks cut at {body!r}", post(b"Transfer-Encoding: chunked\r\n", body), None, CLIENT_ERRORS, half_close=True)
    yield Case("a whole request, then no more", whole, ("POST", "/p", b"hello"), half_close=True)
    yield Case("a whole request for a page, then no more", get(b"GET / HTTP/1.1"), ("GET", "/", b""), half_close=True)


def all_cases() -> list[Case]:
    groups = [request_lines, targets, hosts, fields, lengths, codings, chunks, expectations, cut_short]
    return [case for group in groups for case in group()]
