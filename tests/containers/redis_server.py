"""A redis-server for the tests beside this file. It keeps nothing on disk, and ends with the block that it was started for."""

import socket
import subprocess
import tempfile


def free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]


class Redis:
    """`with Redis() as port:` on a free port of loopback, or on the given one."""

    def __init__(self, port: int | None = None):
        self.port = port or free_port()

    def __enter__(self) -> int:
        self.folder = tempfile.TemporaryDirectory()
        command = ["redis-server", "--port", str(self.port), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no", "--dir", self.folder.name]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        for line in self.process.stdout:
            if "Ready to accept connections" in line:
                return self.port
        raise RuntimeError(f"redis-server ended with {self.process.wait()}")

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.communicate()
        self.folder.cleanup()
