"""The servers under attack, and the peers beside and in front of them; each on a loopback port of its own, ended with its `with`."""

import contextlib
import json
import os
import re
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import common

# Long enough for any machine; a case that needs it is wrong anyway.
ANSWER_SECONDS = 20

# Answers with the request that PHP has seen, and logs it in a line, also if no client reads the answer.
SCRIPT = """<?php
$body = file_get_contents('php://input');
$seen = json_encode([$_SERVER['REQUEST_METHOD'], $_SERVER['REQUEST_URI'], base64_encode($body)], JSON_UNESCAPED_SLASHES | JSON_INVALID_UTF8_SUBSTITUTE);
file_put_contents('%s', $seen . "\\n", FILE_APPEND | LOCK_EX);
header('Content-Type: application/json');
header('Cache-Control: no-store');
echo $seen;
"""


@dataclass
class Outcome:
    """What a suite found."""

    passed: int = 0
    failures: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    what: str = ""

    def judge(self, right: bool, name: str, found: object) -> None:
        if right:
            self.passed += 1
        else:
            self.failures.append(f"{name}: {found}")


class Site:
    """A folder with a script that writes down every request PHP runs."""

    def __init__(self, folder: Path):
        self.folder = folder
        self.log = folder / "ran.log"
        self.position = 0
        public = folder / "public"
        public.mkdir(parents=True)
        for secret in [".env", ".htaccess", "secret.php.bak", "secret.phpold", "secret.phpbak", "secret.phpt", "secret.php~", "secret.phps",
                       "secret.PHP", "secret.phtml", "hearth.toml"]:
            (public / secret).write_text("secret\n")
        (public / ".git").mkdir()
        (public / ".git/config").write_text("secret\n")
        (public / "secret.php").write_text("<?php // secret\n")
        (public / "index.php").write_text(SCRIPT % self.log)
        self.log.touch()
        # php-fpm's children and the server may be other users.
        self.log.chmod(0o666)

    def ran(self) -> list[tuple[str, str, bytes]]:
        """What PHP has run since the last look: (method, target, body)."""
        import base64
        with self.log.open("rb") as log:
            log.seek(self.position)
            lines = log.read().splitlines()
            self.position = log.tell()
        return [(method, target, base64.b64decode(body)) for method, target, body in map(json.loads, lines)]


def hearth(site: Site, *arguments: str, workers: int = 2) -> contextlib.AbstractContextManager[tuple[int, subprocess.Popen]]:
    """`hearth serve`; gives its port and process."""
    return common.hearth("serve", site.folder, "--model", "request", "--workers", workers, *arguments, folder=site.folder)


def php_fpm() -> str | None:
    found = sorted(Path("/usr/sbin").glob("php-fpm[0-9]*"))
    return str(found[-1]) if found else None


NGINX = """
daemon off;
master_process off;
pid {folder}/nginx.pid;
error_log {folder}/nginx-error.log;
events {{ worker_connections 512; }}
http {{
    access_log off;
    client_body_temp_path {folder}/nginx-body;
    proxy_temp_path {folder}/nginx-proxy;
    fastcgi_temp_path {folder}/nginx-fastcgi;
    uwsgi_temp_path {folder}/nginx-uwsgi;
    scgi_temp_path {folder}/nginx-scgi;
{upstream}
    server {{
        listen 127.0.0.1:{port};
{locations}
    }}
}}
"""


@contextlib.contextmanager
def nginx(folder: Path, locations: str, upstream: str = "") -> Iterator[int]:
    port = common.free_port()
    configuration = folder / "nginx.conf"
    configuration.write_text(NGINX.format(folder=folder, port=port, locations=locations, upstream=upstream))
    with common.listening([shutil.which("nginx"), "-c", configuration, "-p", folder], port, folder / "nginx.log"):
        yield port


@contextlib.contextmanager
def nginx_with_php_fpm(site: Site) -> Iterator[int]:
    """nginx as everybody runs it for PHP; only where nginx and php-fpm are installed."""
    folder = site.folder
    configuration = folder / "fpm.conf"
    user = "user = root\ngroup = root\n" if os.geteuid() == 0 else ""
    configuration.write_text(f"[global]\nerror_log = {folder}/fpm-error.log\ndaemonize = no\n[www]\nlisten = {folder}/fpm.sock\n{user}pm = static\npm.max_children = 2\n")
    root = ["--allow-to-run-as-root"] if os.geteuid() == 0 else []
    with common.program([php_fpm(), "-y", configuration, *root], folder / "fpm.log") as process:
        deadline = time.monotonic() + common.READY_SECONDS
        while not (folder / "fpm.sock").exists() and time.monotonic() < deadline and process.poll() is None:
            time.sleep(0.05)
        locations = f"""
        root {folder}/public;
        location / {{
            include /etc/nginx/fastcgi_params;
            fastcgi_param SCRIPT_FILENAME {folder}/public/index.php;
            fastcgi_pass unix:{folder}/fpm.sock;
        }}"""
        with nginx(folder, locations) as port:
            yield port


@dataclass
class Reply:
    status: int
    body: bytes


def read_replies(connection: socket.socket, seconds: float = ANSWER_SECONDS) -> tuple[list[Reply], bytes, bool]:
    """All answers until the server closes: the answers, bytes that are none, and whether it did close in time."""
    connection.settimeout(seconds)
    data, closed = b"", True
    try:
        while piece := connection.recv(65536):
            data += piece
    except TimeoutError:
        closed = False
    except ConnectionResetError:
        pass
    return *parse_replies(data), closed


def parse_replies(data: bytes) -> tuple[list[Reply], bytes]:
    replies = []
    while data:
        head, separator, rest = data.partition(b"\r\n\r\n")
        status = re.match(rb"HTTP/1\.[01] (\d{3})", head)
        if not status or not separator:
            return replies, data
        number = int(status[1])
        fields = {name.strip().lower(): value.strip() for name, _, value in (line.partition(b":") for line in head.split(b"\r\n")[1:])}
        if number < 200:
            data = rest
            continue
        if fields.get(b"transfer-encoding") == b"chunked":
            body = b""
            while True:
                size, _, rest = rest.partition(b"\r\n")
                length = int(size or b"0", 16)
                body, rest = body + rest[:length], rest[length + 2:]
                if length == 0:
                    break
        elif b"content-length" in fields:
            length = int(fields[b"content-length"])
            body, rest = rest[:length], rest[length:]
        elif number in (204, 304):
            body = b""
        else:
            body, rest = rest, b""
        replies.append(Reply(number, body))
        data = rest
    return replies, b""
