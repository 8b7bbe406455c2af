"""One case against channels: what the suite's echo server would send back arrives at a partner who listens on the same channel.

A text of a case travels as the data of a client event, so the partner must get it unchanged. Text that cannot stand in JSON as it is, and binary
messages, which the Pusher protocol does not have, must each get one `pusher:error`, and the connection stays open.
"""

import json

from client import BINARY, CLOSE, CONTINUATION, PING, PONG, PREFIX, SUFFIX, TEXT, Client, Ended, frame

OK, NON_STRICT, INFORMATIONAL = "OK", "NON-STRICT", "INFORMATIONAL"


class Wrong(Exception):
    """The server reacted otherwise than the case wants."""


def fits_json(payload: bytes) -> bool:
    return payload != b"" and not any(byte < 0x20 or byte in b'"\\' for byte in payload)


def pieces(payload: bytes, size: int) -> list[bytes]:
    return [payload[at:at + size] for at in range(0, len(payload), size)] or [b""]


def message(parts: list[bytes], opcode: int = TEXT, rsv: int = 0) -> bytes:
    """The frames of one message, a frame for each part."""
    last = len(parts) - 1
    return b"".join(
        frame(opcode if at == 0 else CONTINUATION, part, fin=at == last, rsv=rsv if at == 0 else 0) for at, part in enumerate(parts)
    )


def wrapped(parts: list[bytes]) -> list[bytes]:
    parts = [PREFIX + parts[0], *parts[1:]]
    return [*parts[:-1], parts[-1] + SUFFIX]


class Trial:
    def __init__(self, port: int, offer: str | None = None):
        self.partner = Client(port, offer)
        self.partner.subscribe()
        self.subject = Client(port, offer)
        self.subject.subscribe()
        self.code: int | None = None
        self.pongs: list[bytes] = []
        self.errors = 0
        self.messages: list[bytes] = []

    def close(self) -> None:
        self.subject.end()
        self.partner.end()

    def send(self, data: bytes, chop: int | None = None) -> None:
        self.subject.send(data, chop)

    def read(self) -> int:
        """Reads one message or control frame of the subject, and keeps it."""
        opcode, payload = self.subject.next()
        if opcode == PONG:
            self.pongs.append(payload)
        elif opcode == TEXT:
            event = json.loads(payload)
            if event["event"] != "pusher:error":
                raise Wrong(f"the sender got {payload[:80]!r}")
            self.errors += 1
        elif opcode != CLOSE:
            raise Wrong(f"opcode {opcode}")
        return opcode

    def read_partner(self) -> int:
        opcode, payload = self.partner.next()
        if opcode == TEXT:
            self.messages.append(json.loads(payload)["data"].encode())
        return opcode

    def finish(self, messages: list[bytes] = [], pongs: list[bytes] = [], errors: int = 0) -> str:
        """All this arrives and no more, and the connection closes cleanly with 1000."""
        while len(self.messages) < len(messages):
            self.read_partner()
        while len(self.pongs) < len(pongs) or self.errors < errors:
            if self.read() == CLOSE:
                raise Wrong(f"closed with {self.subject.close_code}")
        self.send(frame(CLOSE, (1000).to_bytes(2, "big")))
        self.closes([1000])
        return self.compare(messages, pongs, errors)

    def closes(self, codes: list[int]) -> None:
        """The server sends a close frame with one of these codes and ends the connection."""
        try:
            while self.read() != CLOSE:
                pass
        except Ended as error:
            raise Wrong(f"no close frame: {error}") from None
        self.code = self.subject.close_code
        if self.code not in codes:
            raise Wrong(f"closed with {self.code}")
        self.subject.end()

    def listen_to_the_end(self) -> None:
        """The partner closes; what was sent to it before must have arrived."""
        self.partner.send(frame(CLOSE, (1000).to_bytes(2, "big")))
        while self.read_partner() != CLOSE:
            pass

    def compare(self, messages: list[bytes], pongs: list[bytes], errors: int) -> str:
        self.listen_to_the_end()
        if self.pongs != pongs:
            raise Wrong(f"pongs {self.pongs}")
        if self.errors != errors:
            raise Wrong(f"{self.errors} errors")
        if self.messages != messages:
            raise Wrong(f"messages {[text[:40] for text in self.messages]}")
        return OK

    def fails(self, codes: list[int], messages: list[bytes] = []) -> str:
        """The server fails the connection. Not to deliver what was complete before is allowed, but not strict."""
        self.closes(codes)
        self.listen_to_the_end()
        if self.pongs or self.errors:
            raise Wrong(f"{len(self.pongs)} pongs and {self.errors} errors before the close")
        if self.messages == messages:
            return OK
        if not self.messages:
            return NON_STRICT
        raise Wrong(f"messages {[text[:40] for text in self.messages]}")

    def text(self, parts: list[bytes], chop: int | None = None) -> tuple[list[bytes], int]:
        """Sends a text in fragments; returns what `finish` is to expect of it: messages and errors."""
        whole = b"".join(parts)
        if fits_json(whole):
            self.send(message(wrapped(parts)), chop)
            return [whole], 0
        self.send(message(parts), chop)
        return [], 1

    def echo(self, parts: list[bytes], chop: int | None = None) -> str:
        messages, errors = self.text(parts, chop)
        return self.finish(messages, errors=errors)

    def binary(self, parts: list[bytes], chop: int | None = None) -> str:
        self.send(message(parts, BINARY), chop)
        return self.finish(errors=1)

    def answers(self) -> None:
        """The connection is still open: it answers a ping."""
        self.send(frame(PING, b"open"))
        before = len(self.pongs)
        while len(self.pongs) == before:
            if self.read() == CLOSE:
                raise Wrong(f"closed too early with {self.subject.close_code}")
        if self.pongs.pop() != b"open":
            raise Wrong("another pong")


def sized(length: int) -> bytes:
    """A payload that makes the wrapped message this long."""
    room = length - len(PREFIX) - len(SUFFIX)
    return b"*" * room if room > 0 else b"*" * length
