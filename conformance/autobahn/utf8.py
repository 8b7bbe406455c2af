"""Section 6 of the case list: texts that are UTF-8 and texts that are not, in one piece and in many.

The sequences from 6.5 on are those of Markus Kuhn's UTF-8 decoder stress test, as the list has them.
"""

from collections.abc import Iterator

from cases import INVALID, PAUSE_SECONDS, Case, Run
from client import CONTINUATION, PREFIX, TEXT, frame
from trial import Trial, Wrong, message, pieces, wrapped

GREETING = "Hello-µ@ßöäüàá-UTF-8!!".encode()
GREEK = b"\xce\xba\xe1\xbd\xb9\xcf\x83\xce\xbc\xce\xb5"
SURROGATE = GREEK + b"\xed\xa0\x80edited"
BEYOND = GREEK + b"\xf4\x90\x80\x80edited"


def is_utf8(payload: bytes) -> bool:
    try:
        payload.decode()
        return True
    except UnicodeDecodeError:
        return False


def texts() -> Iterator[Case]:
    def raw_empty(parts: list[bytes]) -> Run:
        return lambda trial: trial.echo(parts)

    def invalid(parts: list[bytes]) -> Run:
        def run(trial: Trial) -> str:
            trial.send(message(wrapped(parts)))
            return trial.fails(INVALID)
        return run

    def fragment_fails(parts: list[bytes]) -> Run:
        """The second frame makes the text invalid: the third is never needed."""
        def run(trial: Trial) -> str:
            first, second, _third = wrapped(parts)
            trial.send(frame(TEXT, first, fin=False))
            trial.answers()
            trial.send(frame(CONTINUATION, second, fin=False))
            return trial.fails(INVALID)
        return run

    def chop_fails(parts: list[bytes]) -> Run:
        """The same within one frame, where no ping can ask whether the first part was accepted."""
        def run(trial: Trial) -> str:
            parts_in_json = wrapped(parts)
            whole = frame(TEXT, b"".join(parts_in_json))
            head = len(whole) - sum(map(len, parts_in_json))
            cut = head + len(parts_in_json[0])
            trial.send(whole[:cut])
            if not trial.subject.quiet(PAUSE_SECONDS):
                raise Wrong("a reaction to the valid beginning")
            trial.send(whole[cut:cut + len(parts_in_json[1])])
            return trial.fails(INVALID)
        return run

    yield "6.1.1", "text of no bytes", raw_empty([b""])
    yield "6.1.2", "text of three empty fragments", raw_empty([b"", b"", b""])
    yield "6.1.3", "text of three fragments, the first and last empty but for JSON", raw_empty([b"", b"middle frame payload", b""])
    yield "6.2.1", "valid text in one piece", raw_empty([GREETING])
    cut = len("Hello-µ@ßöä".encode())
    yield "6.2.2", "valid text in two fragments, cut between characters", raw_empty([GREETING[:cut], GREETING[cut:]])
    yield "6.2.3", "valid text in fragments of a byte", raw_empty(pieces(GREETING, 1))
    yield "6.2.4", "valid Greek text in fragments of a byte", raw_empty(pieces(GREEK, 1))
    yield "6.3.1", "a surrogate in one piece", invalid([SURROGATE])
    yield "6.3.2", "a surrogate in fragments of a byte", invalid(pieces(SURROGATE, 1))
    split = len(GREEK)
    yield "6.4.1", "a code point beyond Unicode in the second of three fragments", fragment_fails([BEYOND[:split], BEYOND[split:split + 4], BEYOND[split + 4:]])
    yield "6.4.2", "the second fragment ends with the first invalid byte", fragment_fails([BEYOND[:split + 1], BEYOND[split + 1:split + 2], BEYOND[split + 2:]])
    yield "6.4.3", "a code point beyond Unicode in the second of three chops", chop_fails([BEYOND[:split], BEYOND[split:split + 4], BEYOND[split + 4:]])
    yield "6.4.4", "the second chop ends with the first invalid byte", chop_fails([BEYOND[:split + 1], BEYOND[split + 1:split + 2], BEYOND[split + 2:]])
    for section, (what, sequences) in enumerate(SEQUENCES, 5):
        for number, sequence in enumerate(sequences, 1):
            name, hexadecimal = f"6.{section}.{number}", sequence.hex()
            shown = hexadecimal if len(hexadecimal) <= 32 else hexadecimal[:29] + "..."
            if is_utf8(sequence):
                yield name, f"{what}: {shown}", raw_empty([sequence])
            else:
                # At the end of the text, where a missing byte is missing.
                yield name, f"{what}: {shown}", lambda trial, sequence=sequence: invalid_at_the_end(trial, sequence)


def invalid_at_the_end(trial: Trial, sequence: bytes) -> str:
    trial.send(message([PREFIX + sequence]))
    return trial.fails(INVALID)


def noncharacters() -> Iterator[bytes]:
    yield b"\xef\xbf\xbe"
    yield b"\xef\xbf\xbf"
    for plane in range(1, 17):
        for last in (0xFFFE, 0xFFFF):
            yield chr(plane << 16 | last).encode()


def start_bytes(first: int, last: int) -> bytes:
    return b"".join(bytes([byte, 0x20]) for byte in range(first, last))


MISSING = [b"\xc0", b"\xe0\x80", b"\xf0\x80\x80", b"\xf8\x80\x80\x80", b"\xfc\x80\x80\x80\x80",
           b"\xdf", b"\xef\xbf", b"\xf7\xbf\xbf", b"\xfb\xbf\xbf\xbf", b"\xfd\xbf\xbf\xbf\xbf"]
HIGH = [b"\xed\xa0\x80", b"\xed\xad\xbf", b"\xed\xae\x80", b"\xed\xaf\xbf"]
LOW = [b"\xed\xb0\x80", b"\xed\xbe\x80", b"\xed\xbf\xbf"]
SEQUENCES: list[tuple[str, list[bytes]]] = [
    ("valid", [b"hello$world", "hello¢world".encode(), "hello€world".encode(), b"hello\xf0\xa4\xad\xa2world", GREEK]),
    ("prefix of a valid text", [GREEK[:length] for length in range(1, len(GREEK) + 1)]),
    ("first of its length", [b"\x00", b"\xc2\x80", b"\xe0\xa0\x80", b"\xf0\x90\x80\x80"]),
    ("first of five or six bytes", [b"\xf8\x88\x80\x80\x80", b"\xfc\x84\x80\x80\x80\x80"]),
    ("last of its length", [b"\x7f", b"\xdf\xbf", b"\xef\xbf\xbf", b"\xf4\x8f\xbf\xbf"]),
    ("last of four to six bytes", [b"\xf7\xbf\xbf\xbf", b"\xfb\xbf\xbf\xbf\xbf", b"\xfd\xbf\xbf\xbf\xbf\xbf"]),
    ("other boundary", [b"\xed\x9f\xbf", b"\xee\x80\x80", b"\xef\xbf\xbd", b"\xf4\x8f\xbf\xbf", b"\xf4\x90\x80\x80"]),
    ("unexpected continuation", [(b"\x80\xbf" * 3)[:length] for length in (1,)] + [b"\xbf"] + [(b"\x80\xbf" * 3)[:length] for length in range(2, 7)] + [bytes(range(0x80, 0xBF))]),
    ("lonely start", [start_bytes(0xC0, 0xDF), start_bytes(0xE0, 0xEF), start_bytes(0xF0, 0xF7), start_bytes(0xF8, 0xFB), start_bytes(0xFC, 0xFD)]),
    ("last byte missing", MISSING),
    ("incomplete sequences in a row", [b"".join(MISSING)]),
    ("impossible byte", [b"\xfe", b"\xff", b"\xfe\xfe\xff\xff"]),
    ("overlong ASCII", [b"\xc0\xaf", b"\xe0\x80\xaf", b"\xf0\x80\x80\xaf", b"\xf8\x80\x80\x80\xaf", b"\xfc\x80\x80\x80\x80\xaf"]),
    ("longest overlong", [b"\xc1\xbf", b"\xe0\x9f\xbf", b"\xf0\x8f\xbf\xbf", b"\xf8\x87\xbf\xbf\xbf", b"\xfc\x83\xbf\xbf\xbf\xbf"]),
    ("overlong NUL", [b"\xc0\x80", b"\xe0\x80\x80", b"\xf0\x80\x80\x80", b"\xf8\x80\x80\x80\x80", b"\xfc\x80\x80\x80\x80\x80"]),
    ("single surrogate", HIGH + LOW),
    ("pair of surrogates", [high + low for high in HIGH for low in (LOW[0], LOW[2])]),
    ("noncharacter", list(noncharacters())),
    ("special", [chr(code).encode() for code in range(0xFFF9, 0x10000)]),
]
