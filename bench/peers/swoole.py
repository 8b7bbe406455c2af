"""Swoole, two workers without coroutines. SWOOLE=path names a swoole.so that PHP does not load by itself."""

import os
import shutil
import subprocess
from pathlib import Path

from harness.certificates import Certificate
from harness.processes import Server

from . import App, Missing, Peer, free_port, ini_environment

WORKERS = 2
SCRIPT = Path(__file__).with_name("swoole.php")


def find() -> list[Peer | Missing]:
    php = shutil.which("php")
    extension = ["-d", f"extension={path}"] if (path := os.environ.get("SWOOLE")) else []
    version = ""
    if php:
        asked = subprocess.run([php, *extension, "-r", "echo phpversion('swoole') ?: '';"],
                               capture_output=True, text=True, check=False, timeout=20)
        version = asked.stdout.strip()
    name = f"Swoole ({WORKERS})"
    if not version:
        return [Missing("Swoole", "PHP has no swoole extension; SWOOLE=path names a swoole.so")]
    return [Peer(name, lambda app, work, certificate=None: _start(name, [php, *extension], app, work, certificate), f"Swoole {version}")]


def _start(name: str, php: list[str], app: App, work: Path, certificate: Certificate | None) -> Server:
    port = free_port()
    server = Server(name, f"http{'s' if certificate else ''}://127.0.0.1:{port}{app.path}", work / "output.log")
    files = [str(certificate.signed), str(certificate.key)] if certificate else []
    server.run([*php, str(SCRIPT), app.name, str(app.folder), str(port), str(WORKERS), *files], ini_environment(work))
    return server
