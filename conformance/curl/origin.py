"""The server of libcurl's tests, as far as they need it: answers with the reply of the test whose number the path ends with, and keeps each request."""

import re
import socket
import threading

from cases import Case


class Origin:
    def __init__(self) -> None:
        self.case: Case | None = None
        self.requests: list[bytes] = []
        self.socket = socket.create_server(("127.0.0.1", 0))
        self.port = self.socket.getsockname()[1]
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self) -> None:
        while True:
            connection, _ = self.socket.accept()
            threading.Thread(target=self.serve, args=(connection,), daemon=True).start()

    def serve(self, connection: socket.socket) -> None:
        connection.settimeout(30)
        data = b""
        try:
            with connection:
                while True:
                    while b"\r\n\r\n" not in data:
                        if not (piece := connection.recv(65536)):
                            return
                        data += piece
                    head, _, data = data.partition(b"\r\n\r\n")
                    if re.search(rb"^expect: *100-continue", head, re.MULTILINE | re.IGNORECASE):
                        connection.sendall(b"HTTP/1.1 100 Continue\r\n\r\n")
                    body, data = self.body(connection, head, data)
                    self.requests.append(head + b"\r\n\r\n" + body)
                    reply = self.reply(head)
                    connection.sendall(reply)
                    if not self.stays(head, reply):
                        return
        except OSError:
            pass

    @staticmethod
    def body(connection: socket.socket, head: bytes, data: bytes) -> tuple[bytes, bytes]:
        def more() -> bytes:
            if not (piece := connection.recv(65536)):
                raise OSError("cut off")
            return piece

        if length := re.search(rb"^content-length: *(\d+)", head, re.MULTILINE | re.IGNORECASE):
            while len(data) < int(length[1]):
                data += more()
            return data[: int(length[1])], data[int(length[1]):]
        whole = b""
        while re.search(rb"^transfer-encoding: *chunked", head, re.MULTILINE | re.IGNORECASE):
            while b"\r\n" not in data:
                data += more()
            line, _, data = data.partition(b"\r\n")
            size = int(line.split(b";")[0], 16)
            while len(data) < size + 2:
                data += more()
            whole, data = whole + data[:size], data[size + 2:]
            if size == 0:
                break
        return whole, data

    def reply(self, head: bytes) -> bytes:
        case = self.case
        if case is None:
            return b"HTTP/1.1 404 No test\r\nContent-Length: 0\r\n\r\n"
        line = head.split(b"\r\n", 1)[0]
        if line.startswith(b"CONNECT ") and "connect" in case.replies:
            return case.replies["connect"]
        target = line.split(b" ")[1] if line.count(b" ") else b""
        numbers = re.findall(rb"(\d+)", re.split(rb"[?#]", target)[0].rpartition(b"/")[2])
        part = int(numbers[-1]) % 10000 if numbers and int(numbers[-1]) >= 10000 else 0
        if re.search(rb"^(proxy-)?authorization: *digest", head, re.MULTILINE | re.IGNORECASE):
            part += 1000
        elif re.search(rb"^(proxy-)?authorization: *basic", head, re.MULTILINE | re.IGNORECASE) and "auth_required" in case.commands:
            part += 1000
        name = f"data{part}" if part else "data"
        return case.replies.get(name) or case.replies.get("data") or b"HTTP/1.1 404 No reply\r\nContent-Length: 0\r\n\r\n"

    @staticmethod
    def stays(head: bytes, reply: bytes) -> bool:
        top = re.split(rb"\r?\n\r?\n", reply, maxsplit=1)[0].lower()
        framed = b"content-length:" in top or b"transfer-encoding:" in top or re.match(rb"http/1.1 (204|304|2\d\d connection)", top) is not None
        return framed and b"swsclose" not in reply and b"connection: close" not in top and b" http/1.0" not in head.lower().split(b"\r\n")[0]
