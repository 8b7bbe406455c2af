"""php-fpm with one worker, asked for one test after another: whether a difference from php-cgi is one of every server that keeps its processes."""

import collections
import socket
import struct
import subprocess
import time

from . import cases
from .answers import Answer
from .php_cgi import SECONDS
from .place import program
from .server import PhpServer

READY_SECONDS = 30
BEGIN, END, PARAMS, STDIN, STDOUT = 1, 3, 4, 5, 6
LARGEST = 65_535
CONFIGURATION = """[global]
error_log = {folder}/fpm.log
daemonize = no
[www]
listen = {folder}/fpm.sock
user = root
group = root
pm = static
pm.max_children = 1
clear_env = no
request_terminate_timeout = {seconds}
"""


def record(kind: int, content: bytes) -> bytes:
    return struct.pack(">BBHHBx", 1, kind, 1, len(content), 0) + content


def stream(kind: int, content: bytes) -> bytes:
    parts = [content[at:at + LARGEST] for at in range(0, len(content), LARGEST)]
    return b"".join(record(kind, part) for part in [*parts, b""])


def length(text: bytes) -> bytes:
    return bytes([len(text)]) if len(text) < 128 else struct.pack(">I", len(text) | 1 << 31)


class Fpm(PhpServer):
    def start(self) -> None:
        self.starts += 1
        (self.place.folder / "fpm.conf").write_text(CONFIGURATION.format(folder=self.place.folder, seconds=SECONDS))
        command = [program(f"php-fpm{self.php.minor}"), "-R", "-y", self.place.folder / "fpm.conf"]
        with self.log.open("ab") as output:
            self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, cwd=self.place.source, env=self.place.environment(self.php.minor))
        deadline = time.monotonic() + READY_SECONDS
        while time.monotonic() < deadline and self.process.poll() is None:
            try:
                self.connected().close()
                return
            except OSError:
                time.sleep(0.05)
        self.stop()
        raise SystemExit(f"error: php-fpm was never ready: {self.log.read_text(errors='replace')[-1500:]}")

    def connected(self) -> socket.socket:
        connection = socket.socket(socket.AF_UNIX)
        connection.settimeout(SECONDS + 10)
        connection.connect(str(self.place.folder / "fpm.sock"))
        return connection

    def exchange(self, request: cases.Request) -> Answer:
        script = str(self.place.folder / "once.php")
        fields = {"REQUEST_METHOD": request.method, "QUERY_STRING": request.query, "SCRIPT_FILENAME": script, "SCRIPT_NAME": "/once.php", "REQUEST_URI": "/once.php",
                  "GATEWAY_INTERFACE": "CGI/1.1", "SERVER_PROTOCOL": "HTTP/1.1"}
        if request.body:
            fields["CONTENT_LENGTH"] = str(len(request.body))
        fields |= {"CONTENT_TYPE" if name == "Content-Type" else "HTTP_" + name.upper().replace("-", "_"): value for name, value in request.fields.items()}
        pairs = [(name.encode(), value.encode("latin-1")) for name, value in fields.items()]
        params = b"".join(length(name) + length(value) + name + value for name, value in pairs)
        received, output, ended = b"", b"", False
        try:
            with self.connected() as connection:
                connection.sendall(record(BEGIN, struct.pack(">HB5x", 1, 0)) + stream(PARAMS, params) + stream(STDIN, request.body))
                while not ended and (more := connection.recv(1 << 16)):
                    received += more
                    while len(received) >= 8 and len(received) >= 8 + sum(struct.unpack(">HB", received[4:7])):
                        kind, (size, padding) = received[1], struct.unpack(">HB", received[4:7])
                        output += received[8:8 + size] if kind == STDOUT else b""
                        ended = ended or kind == END
                        received = received[8 + size + padding:]
        except OSError as error:
            return Answer(b"", [], f"no answer: {type(error).__name__}: {error}")
        head, _, body = output.partition(b"\r\n\r\n")
        lines = [line.partition(":") for line in head.decode("latin-1").split("\r\n")]
        return Answer(body, [(name, value.strip()) for name, colon, value in lines if colon], "" if ended else "the worker ended")

    def lives(self) -> collections.Counter[str]:
        return collections.Counter()
