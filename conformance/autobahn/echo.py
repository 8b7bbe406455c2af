"""The same cases against a WebSocket that an application handles: its PHP answers each message with the message itself.

Texts keep the JSON around them that channels need; here it is only a part of the message.
"""

from client import BINARY, CLOSE, PING, PONG, PREFIX, SUFFIX, TEXT, Client, Ended, frame
from trial import OK, Trial, Wrong, fits_json, message, wrapped

TARGET = "/echo"
# An empty answer is no message, so an empty message is sent back by the function.
HANDLER = """<?php
hearth_await_request();
$message = file_get_contents('php://input');
$binary = ($_SERVER['HEARTH_SOCKET_BINARY'] ?? '') === '1';
if ($_SERVER['HEARTH_SOCKET_EVENT'] !== 'message') {
    exit;
}
if ($message === '') {
    hearth_socket_send($_SERVER['HEARTH_SOCKET_ID'], '', $binary);
}
if ($binary) {
    header('Content-Type: application/octet-stream');
}
echo $message;
"""


class EchoTrial(Trial):
    def __init__(self, port: int, offer: str | None = None):
        self.subject = Client(port, offer, TARGET)
        self.partner = self.subject
        self.code: int | None = None
        self.pongs: list[bytes] = []
        # The echoes of binary messages: the cases count what channels answer by errors.
        self.errors = 0
        self.binaries: list[bytes] = []
        self.messages: list[bytes] = []

    def close(self) -> None:
        self.subject.end()

    def read(self) -> int:
        opcode, payload = self.subject.next()
        if opcode == PONG:
            self.pongs.append(payload)
        elif opcode == TEXT:
            if payload.startswith(PREFIX) and payload.endswith(SUFFIX):
                payload = payload[len(PREFIX):-len(SUFFIX)]
            self.messages.append(payload)
        elif opcode == BINARY:
            self.errors += 1
            self.binaries.append(payload)
        elif opcode == PING:
            self.send(frame(PONG, payload))
        elif opcode != CLOSE:
            raise Wrong(f"opcode {opcode}")
        return opcode

    def read_partner(self) -> int:
        opcode = self.read()
        if opcode == CLOSE:
            raise Wrong(f"closed with {self.subject.close_code}")
        return opcode

    def listen_to_the_end(self) -> None:
        """Whatever was answered came before the close frame."""

    def text(self, parts: list[bytes], chop: int | None = None) -> tuple[list[bytes], int]:
        whole = b"".join(parts)
        self.send(message(wrapped(parts) if fits_json(whole) else parts), chop)
        return [whole], 0

    def binary(self, parts: list[bytes], chop: int | None = None) -> str:
        self.send(message(parts, BINARY), chop)
        self.finish(errors=1)
        if self.binaries != [b"".join(parts)]:
            raise Wrong("another binary message")
        return OK
