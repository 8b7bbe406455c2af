"""Sections 1 to 7, 9 and 10 of the Autobahn test suite's case list (server tests), written for channels.

Numbers, payloads and wanted reactions are those of the list: https://github.com/crossbario/autobahn-testsuite. Where its fuzzer waits for a second
to see that nothing happens, a ping is answered instead wherever one may be sent.
"""

from collections.abc import Callable, Iterator

from client import BINARY, CLOSE, CONTINUATION, PING, PONG, TEXT, frame
from trial import INFORMATIONAL, Trial, Wrong, message, pieces, sized, wrapped

Run = Callable[[Trial], str]
# number, what is sent, how it runs
Case = tuple[str, str, Run]

PROTOCOL, INVALID = [1002], [1007]
HELLO = b"Hello, world!"
# Longer than a scheduler's pause, within which the server must not have reacted.
PAUSE_SECONDS = 0.1


def framing() -> Iterator[Case]:
    shapes = [(0, None), (125, None), (126, None), (127, None), (128, None), (65535, None), (65536, None), (65536, 997)]
    for number, (length, chop) in enumerate(shapes, 1):
        chopped = f" in chops of {chop}" if chop else ""
        yield f"1.1.{number}", f"text of {length} bytes{chopped}", lambda trial, length=length, chop=chop: trial.echo([sized(length) if length else b""], chop)
    for number, (length, chop) in enumerate(shapes, 1):
        chopped = f" in chops of {chop}" if chop else ""
        yield f"1.2.{number}", f"binary of {length} bytes{chopped}", lambda trial, length=length, chop=chop: trial.binary([b"\xfe" * length], chop)


def pings() -> Iterator[Case]:
    def answered(payload: bytes, chop: int | None = None) -> Run:
        def run(trial: Trial) -> str:
            trial.send(frame(PING, payload), chop)
            return trial.finish(pongs=[payload])
        return run

    def too_long(trial: Trial) -> str:
        trial.send(frame(PING, b"\xfe" * 126))
        return trial.fails(PROTOCOL)

    def unsolicited(payload: bytes, then: list[bytes]) -> Run:
        def run(trial: Trial) -> str:
            trial.send(frame(PONG, payload))
            for ping in then:
                trial.send(frame(PING, ping))
            return trial.finish(pongs=then)
        return run

    def ten(chop: int | None) -> Run:
        def run(trial: Trial) -> str:
            payloads = [b"payload-%d" % number for number in range(10)]
            for payload in payloads:
                trial.send(frame(PING, payload), chop)
            return trial.finish(pongs=payloads)
        return run

    yield "2.1", "ping without payload", answered(b"")
    yield "2.2", "ping with a text", answered(HELLO)
    yield "2.3", "ping with bytes", answered(b"\x00\xff\xfe\xfd\xfc\xfb\x00\xff")
    yield "2.4", "ping of 125 bytes", answered(b"\xfe" * 125)
    yield "2.5", "ping of 126 bytes", too_long
    yield "2.6", "ping of 125 bytes, byte by byte", answered(b"\xfe" * 125, 1)
    yield "2.7", "unsolicited pong", unsolicited(b"", [])
    yield "2.8", "unsolicited pong with payload", unsolicited(b"unsolicited pong payload", [])
    yield "2.9", "unsolicited pong, then a ping", unsolicited(b"unsolicited pong payload", [b"ping payload"])
    yield "2.10", "ten pings", ten(None)
    yield "2.11", "ten pings, byte by byte", ten(1)


def after_hello(*bad: bytes, chop: int | None = None) -> Run:
    """A text that is echoed, then what fails the connection, then a ping that is not answered."""
    def run(trial: Trial) -> str:
        messages, _ = trial.text([HELLO], chop)
        for data in (*bad, frame(PING)):
            trial.send(data, chop)
        return trial.fails(PROTOCOL, messages)
    return run


def alone(*bad: bytes, chop: int | None = None, at_once: bool = False, codes: list[int] = PROTOCOL) -> Run:
    def run(trial: Trial) -> str:
        for data in [b"".join(bad)] if at_once else bad:
            trial.send(data, chop)
        return trial.fails(codes)
    return run


def reserved_bits() -> Iterator[Case]:
    text = message(wrapped([HELLO]))

    def with_bits(rsv: int) -> bytes:
        return bytes([text[0] | rsv << 4]) + text[1:]

    yield "3.1", "text with RSV 1", alone(with_bits(1))
    yield "3.2", "text, text with RSV 2, ping", after_hello(with_bits(2))
    yield "3.3", "text, text with RSV 3, ping, frame by frame", after_hello(with_bits(3))
    yield "3.4", "text, text with RSV 4, ping, byte by byte", after_hello(with_bits(4), chop=1)
    yield "3.5", "binary with RSV 5", alone(frame(BINARY, b"\x00\xff\xfe\xfd\xfc\xfb\x00\xff", rsv=5))
    yield "3.6", "ping with RSV 6", alone(frame(PING, HELLO, rsv=6))
    yield "3.7", "close with RSV 7", alone(frame(CLOSE, rsv=7))


def opcodes() -> Iterator[Case]:
    for group, first, kind in [(1, 3, "non-control"), (2, 11, "control")]:
        yield f"4.{group}.1", f"{kind} opcode {first}", alone(frame(first))
        yield f"4.{group}.2", f"{kind} opcode {first + 1} with payload", alone(frame(first + 1, b"reserved opcode payload"))
        yield f"4.{group}.3", f"text, {kind} opcode {first + 2}, ping", after_hello(frame(first + 2))
        yield f"4.{group}.4", f"text, {kind} opcode {first + 3} with payload, ping", after_hello(frame(first + 3, HELLO))
        yield f"4.{group}.5", f"text, {kind} opcode {first + 4} with payload, ping, byte by byte", after_hello(frame(first + 4, HELLO), chop=1)


def fragments() -> Iterator[Case]:
    two = [b"fragment1", b"fragment2"]
    ping = frame(PING, b"ping payload")
    stray = b"non-continuation payload"

    def split(opcode: int) -> Run:
        return alone(frame(opcode, two[0], fin=False), frame(CONTINUATION, two[1]))

    def with_ping(chop: int | None) -> Run:
        def run(trial: Trial) -> str:
            first, second = wrapped(two)
            for data in (frame(TEXT, first, fin=False), ping, frame(CONTINUATION, second)):
                trial.send(data, chop)
            return trial.finish([b"".join(two)], [b"ping payload"])
        return run

    def frames(chop: int | None) -> Run:
        return lambda trial: trial.echo(two, chop)

    def stray_after_message(trial: Trial) -> str:
        data = message(wrapped(two)) + frame(CONTINUATION, b"fragment3", fin=False) + message(wrapped([b"fragment4"]))
        trial.send(data)
        return trial.fails(PROTOCOL, [b"".join(two)])

    def twice(fin: bool) -> Run:
        once = frame(CONTINUATION, b"fragment1", fin=fin) + message(wrapped([b"fragment2", b"fragment3"]))
        return alone(once, once)

    def pings_between(at_once: bool) -> Run:
        def run(trial: Trial) -> str:
            five = [b"fragment%d" % number for number in range(1, 6)]
            parts = wrapped(five)
            sent = [frame(TEXT, parts[0], fin=False), frame(CONTINUATION, parts[1], fin=False), frame(PING, b"pongme 1!")]
            for data in [b"".join(sent)] if at_once else sent:
                trial.send(data)
            # The first pong comes while the message is incomplete.
            trial.read()
            if trial.pongs != [b"pongme 1!"] or trial.messages:
                raise Wrong(f"pongs {trial.pongs}")
            sent = [frame(CONTINUATION, parts[2], fin=False), frame(CONTINUATION, parts[3], fin=False), frame(PING, b"pongme 2!"), frame(CONTINUATION, parts[4])]
            for data in [b"".join(sent)] if at_once else sent:
                trial.send(data)
            return trial.finish([b"".join(five)], [b"pongme 1!", b"pongme 2!"])
        return run

    yield "5.1", "ping in two fragments", split(PING)
    yield "5.2", "pong in two fragments", split(PONG)
    yield "5.3", "text in two fragments", frames(None)
    yield "5.4", "text in two fragments, frame by frame", frames(None)
    yield "5.5", "text in two fragments, byte by byte", frames(1)
    yield "5.6", "a ping between two fragments", with_ping(None)
    yield "5.7", "a ping between two fragments, frame by frame", with_ping(None)
    yield "5.8", "a ping between two fragments, byte by byte", with_ping(1)
    hello = message(wrapped([HELLO]))
    for number, fin in [(9, True), (12, False)]:
        what = f"continuation of nothing with FIN {'set' if fin else 'unset'}, then a text"
        parts = [frame(CONTINUATION, stray, fin=fin), hello]
        yield f"5.{number}", f"{what}, at once", alone(*parts, at_once=True)
        yield f"5.{number + 1}", f"{what}, frame by frame", alone(*parts)
        yield f"5.{number + 2}", f"{what}, byte by byte", alone(*parts, chop=1)
    yield "5.15", "text in two fragments, then a continuation of nothing", stray_after_message
    yield "5.16", "twice: continuation of nothing without FIN, text in two fragments", twice(False)
    yield "5.17", "twice: continuation of nothing with FIN, text in two fragments", twice(True)
    yield "5.18", "both fragments with opcode text", alone(frame(TEXT, two[0], fin=False), frame(TEXT, two[1]))
    yield "5.19", "text in five fragments with two pings between them", pings_between(True)
    yield "5.20", "text in five fragments with two pings between them, frame by frame", pings_between(False)


def closing() -> Iterator[Case]:
    normal = frame(CLOSE, (1000).to_bytes(2, "big"))

    def closes(data: bytes, codes: list[int], messages: list[bytes] = []) -> Run:
        def run(trial: Trial) -> str:
            trial.send(data)
            trial.closes(codes)
            return trial.compare(messages, [], 0)
        return run

    def with_code(code: int, reason: bytes = b"") -> bytes:
        return frame(CLOSE, code.to_bytes(2, "big") + reason)

    def message_then_close(trial: Trial) -> str:
        """A message far above any other, and a close directly after it: what arrives is left to the server."""
        big = b"BAsd7&jh23" * 26215
        trial.send(message(wrapped([big])) + message(wrapped([b"Hello World!"])) + normal + frame(PING))
        trial.closes([1000])
        trial.listen_to_the_end()
        if trial.pongs or trial.messages not in ([big, b"Hello World!"], [big], []):
            raise Wrong(f"{len(trial.pongs)} pongs, {len(trial.messages)} messages")
        return INFORMATIONAL

    def undefined(code: int) -> Run:
        def run(trial: Trial) -> str:
            closes(with_code(code), [1000, code, 1002])(trial)
            return INFORMATIONAL
        return run

    hello = message(wrapped([b"Hello World!"]))
    yield "7.1.1", "text, then a close", lambda trial: trial.echo([b"Hello World!"])
    yield "7.1.2", "two closes", closes(normal + frame(CLOSE), [1000])
    yield "7.1.3", "a ping after the close", closes(normal + frame(PING), [1000])
    yield "7.1.4", "a text after the close", closes(normal + hello, [1000])
    first, second = wrapped([b"fragment1", b"fragment2"])
    yield "7.1.5", "a close between two fragments", closes(frame(TEXT, first, fin=False) + normal + frame(CONTINUATION, second), [1000])
    yield "7.1.6", "256 KiB, a text, a close, a ping", message_then_close
    # A close without a code is answered by one without a code: "should be 1000 or empty" in the list.
    yield "7.3.1", "close without payload", closes(frame(CLOSE), [1000, 0])
    yield "7.3.2", "close of one byte", closes(frame(CLOSE, b"a"), [1002])
    yield "7.3.3", "close with a code", closes(normal, [1000])
    yield "7.3.4", "close with code and reason", closes(with_code(1000, b"Hello World!"), [1000])
    yield "7.3.5", "close with a reason of 123 bytes", closes(with_code(1000, b"*" * 123), [1000])
    yield "7.3.6", "close with a reason of 124 bytes", closes(with_code(1000, b"*" * 124), [1002])
    yield "7.5.1", "close with a reason that is not UTF-8", closes(with_code(1000, b"\xce\xba\xe1\xbd\xb9\xcf\x83\xce\xbc\xce\xb5\xed\xa0\x80edited"), [1002, 1007])
    for number, code in enumerate([1000, 1001, 1002, 1003, 1007, 1008, 1009, 1010, 1011, 3000, 3999, 4000, 4999], 1):
        yield f"7.7.{number}", f"close with the valid code {code}", closes(with_code(code), [1000, code])
    for number, code in enumerate([0, 999, 1004, 1005, 1006, 1016, 1100, 2000, 2999], 1):
        yield f"7.9.{number}", f"close with the invalid code {code}", closes(with_code(code), [1002])
    yield "7.13.1", "close with code 5000", undefined(5000)
    yield "7.13.2", "close with code 65535", undefined(65535)


def limits() -> Iterator[Case]:
    KIB, MIB = 1 << 10, 1 << 20
    sizes = [64 * KIB, 256 * KIB, MIB, 4 * MIB, 8 * MIB, 16 * MIB]
    text, data = b"BAsd7&jh23", b"\x00\xfe\x23\xfa\xf0"

    def filled(unit: bytes, size: int) -> bytes:
        return (unit * (size // len(unit) + 1))[:size]

    for number, size in enumerate(sizes, 1):
        yield f"9.1.{number}", f"text of {size} bytes", lambda trial, size=size: trial.echo([filled(text, size)])
    for number, size in enumerate(sizes, 1):
        yield f"9.2.{number}", f"binary of {size} bytes", lambda trial, size=size: trial.binary([filled(data, size)])
    parts = [64, 256, KIB, 4 * KIB, 16 * KIB, 64 * KIB, 256 * KIB, MIB, 4 * MIB]
    for number, size in enumerate(parts, 1):
        yield f"9.3.{number}", f"text of 4 MiB in fragments of {size}", lambda trial, size=size: trial.echo(pieces(b"*" * 4 * MIB, size))
    for number, size in enumerate(parts, 1):
        yield f"9.4.{number}", f"binary of 4 MiB in fragments of {size}", lambda trial, size=size: trial.binary(pieces(b"\xfe" * 4 * MIB, size))
    for number, chop in enumerate([64, 128, 256, 512, 1024, 2048], 1):
        yield f"9.5.{number}", f"text of 1 MiB in chops of {chop}", lambda trial, chop=chop: trial.echo([filled(text, MIB)], chop)
    for number, chop in enumerate([64, 128, 256, 512, 1024, 2048], 1):
        yield f"9.6.{number}", f"binary of 1 MiB in chops of {chop}", lambda trial, chop=chop: trial.binary([filled(data, MIB)], chop)

    def one_by_one(binary: bool, length: int) -> Run:
        def run(trial: Trial) -> str:
            payload = (b"\xfe" if binary else b"*") * length
            messages, errors = [], 0
            for _ in range(1000):
                if binary:
                    trial.send(frame(BINARY, payload))
                    more, wrong = [], 1
                else:
                    more, wrong = trial.text([payload])
                messages, errors = messages + more, errors + wrong
                while len(trial.messages) < len(messages):
                    trial.read_partner()
                while trial.errors < errors:
                    if trial.read() == CLOSE:
                        raise Wrong(f"closed with {trial.subject.close_code}")
            return trial.finish(messages, errors=errors)
        return run

    for section, binary in [("9.7", False), ("9.8", True)]:
        for number, length in enumerate([0, 16, 64, 256, 1024, 4096], 1):
            yield f"{section}.{number}", f"1,000 {'binary' if binary else 'text'} messages of {length} bytes, one by one", one_by_one(binary, length)
    yield "10.1.1", "text of 65,536 bytes in fragments of 1,300", lambda trial: trial.echo(pieces(b"*" * 65536, 1300))

