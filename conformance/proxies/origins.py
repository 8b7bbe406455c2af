"""nginx and HAProxy as origins behind the egress: connections that they end while calls arrive, reloads under load, interim answers.

Every call has a path of its own, and the origin logs each request. So a lost call, an answer to another call, and a call that was sent twice are seen.
"""

import collections
import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import common

SECONDS = 60
PROCESSES = 4
CALLS = 250
# More than 1 MiB: libcurl, and the broker for it, expect an interim answer first.
BODY = 1_500_000
PHP = r"""
[$_, $base, $name, $count, $options] = $argv;
$options = json_decode($options, true);
$handle = curl_init();
$wrong = $failed = [];
for ($number = 0; $number < $count; $number++) {
    $path = "/$name-$number";
    $post = $number % 2 === 1;
    curl_setopt_array($handle, [CURLOPT_URL => $base . $path, CURLOPT_RETURNTRANSFER => true, CURLOPT_HTTPGET => !$post, CURLOPT_SSL_VERIFYPEER => false, CURLOPT_SSL_VERIFYHOST => 0]
        + ($post ? [CURLOPT_POSTFIELDS => str_repeat('x', $options['body'])] : []));
    $body = curl_exec($handle);
    if ($body === false) {
        $failed[] = [$post ? 'POST' : 'GET', $path, curl_errno($handle) . ' ' . curl_error($handle)];
    } elseif ($body !== ($post ? 'POST ' : 'GET ') . $path) {
        $wrong[] = [$path, substr($body, 0, 80)];
    }
    usleep($options['pause']);
}
echo json_encode([$wrong, $failed, extension_loaded('hearth'), curl_getinfo($handle, CURLINFO_HTTP_VERSION)]);
"""
NGINX = """
daemon off;
pid {folder}/nginx.pid;
error_log {folder}/nginx-error.log;
worker_processes 2;
events {{ worker_connections 256; }}
http {{
    log_format ours '$request_method $request_uri';
    access_log {folder}/access.log ours;
    client_body_temp_path {folder}/body;
    proxy_temp_path {folder}/proxy;
    fastcgi_temp_path {folder}/fastcgi;
    uwsgi_temp_path {folder}/uwsgi;
    scgi_temp_path {folder}/scgi;
    client_max_body_size 8m;
    server {{
        listen 127.0.0.1:{port};
        listen 127.0.0.1:{tls} ssl http2;
        ssl_certificate {folder}/server.pem;
        ssl_certificate_key {folder}/server.key;
        keepalive_requests {requests};
        keepalive_timeout {idle}ms;
        location / {{ return 200 "$request_method $request_uri"; }}
    }}
}}
"""
HAPROXY = """
global
    log stdout format raw local0
defaults
    mode http
    log global
    log-format "%HM %[var(txn.path)]"
    timeout connect 5s
    timeout client 20s
    timeout server 20s
    timeout http-keep-alive {idle}ms
frontend front
    bind 127.0.0.1:{port}
    bind 127.0.0.1:{tls} ssl crt {folder}/both.pem alpn h2
    option http-buffer-request
    http-request set-var(txn.path) path
    http-request return status 200 content-type text/plain lf-string "%[method] %[path]"
"""


def certificate(folder: Path) -> None:
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-keyout", folder / "server.key", "-out", folder / "server.pem", "-days", "30", "-subj", "/CN=localhost"]
    subprocess.run(command, check=True, capture_output=True)
    (folder / "both.pem").write_text((folder / "server.pem").read_text() + (folder / "server.key").read_text())


# POSTs that may arrive just as a reload, or a time limit of idle connections, ends their connection.
MOST_ENDED = PROCESSES


class Origin:
    def __init__(self, name: str, folder: Path, idle: int, requests: int):
        self.name, self.folder = name, folder
        self.port, self.tls = common.free_port(), common.free_port()
        certificate(folder)
        template = NGINX if name == "nginx" else HAPROXY
        (folder / "origin.conf").write_text(template.format(folder=folder, port=self.port, tls=self.tls, idle=idle, requests=requests))
        self.log = folder / ("access.log" if name == "nginx" else "origin.log")

    @contextlib.contextmanager
    def running(self) -> Iterator[subprocess.Popen]:
        program = shutil.which(self.name)
        arguments = ["-c", self.folder / "origin.conf", "-p", self.folder] if self.name == "nginx" else ["-W", "-db", "-f", self.folder / "origin.conf"]
        with common.program([program, *arguments], self.folder / "origin.log") as process:
            deadline = time.monotonic() + common.READY_SECONDS
            while not self.listens():
                assert time.monotonic() < deadline and process.poll() is None, f"{self.name} was never ready: {(self.folder / 'origin.log').read_text()[-300:]}"
                time.sleep(0.02)
            yield process

    def listens(self) -> bool:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self.port), 1):
            return True
        return False

    def reload(self, process: subprocess.Popen) -> None:
        process.send_signal(signal.SIGHUP if self.name == "nginx" else signal.SIGUSR2)

    def requests(self) -> collections.Counter:
        return collections.Counter(line for line in self.log.read_text(errors="replace").splitlines() if line.startswith(("GET /", "POST /")))


def calls(origin: Origin, folder: Path, base: str, reloads: int = 0, ends: int = 0, pause: int = 0, count: int = CALLS, body: int = 1) -> list[str]:
    """Several processes call at once. Gives what was wrong. `ends`: how often each of their connections may end just as a POST arrives, besides the reloads."""
    minor = subprocess.run(["php", "-r", "echo PHP_MAJOR_VERSION, '.', PHP_MINOR_VERSION;"], capture_output=True, text=True, check=True).stdout
    extension = Path(os.environ.get("HEARTH_WORKER_DIR") or common.programs()).resolve() / f"hearth-{minor}.so"
    socket_path = folder / "egress.sock"
    options = json.dumps({"pause": pause, "body": body})
    with origin.running() as process, common.broker(socket_path, folder):
        environment = common.environment(HEARTH_EGRESS=str(socket_path))
        callers = [subprocess.Popen(["php", "-d", f"extension={extension}", "-r", PHP, base, f"p{number}", str(count), options], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment)
                   for number in range(PROCESSES)]
        for _ in range(reloads):
            # Spread over the calls: each waits until some more were logged.
            before, deadline = sum(origin.requests().values()), time.monotonic() + SECONDS
            while sum(origin.requests().values()) < before + PROCESSES * count // (reloads + 2) and time.monotonic() < deadline and any(caller.poll() is None for caller in callers):
                time.sleep(0.005)
            origin.reload(process)
        said = [caller.communicate(timeout=SECONDS * 2)[0] for caller in callers]
        problems, failed = [], []
        for text in said:
            try:
                wrong, lost, loaded, _ = json.loads(text)
            except ValueError:
                return [f"PHP said {text[:200]!r}"]
            problems += [f"another answer: {one}" for one in wrong] + ([] if loaded else ["the extension is not loaded"])
            failed += lost
    # The origin has ended: its log is complete.
    logged = origin.requests()
    wanted = [("POST" if number % 2 else "GET") + f" /p{process}-{number}" for process in range(PROCESSES) for number in range(count)]
    names = {f"{method} {path}": error for method, path, error in failed}
    # A server may end a kept connection just as a POST arrives. Only the caller knows whether it may be repeated (RFC 9110, section 9.2.2).
    problems += [f"lost: {call}: {error}" for call, error in names.items() if call.startswith("GET") or logged[call] or not reloads + ends]
    problems += [f"{len(names)} POSTs met the end of their connection"] if len(names) > MOST_ENDED * (reloads + ends) else []
    problems += [f"sent {logged[call]} times: {call}" for call in wanted if call.startswith("POST") and logged[call] > 1]
    # HAProxy drops lines of its log when it cannot write them at once (management.txt, "DroppedLogs"). Each answer names its call anyway.
    if origin.name == "nginx":
        problems += [f"answered, but not in the log: {call}" for call in wanted if call not in names and not logged[call]]
    return problems


def check(problems: list[str]) -> None:
    assert not problems, f"{len(problems)}: {'; '.join(problems[:4])}"


def cases(place: Path) -> Iterator[tuple[str, str, Callable[[], None]]]:
    for name in ("nginx", "haproxy"):
        if not shutil.which(name) or not shutil.which("openssl"):
            continue
        for title, settings, over_tls, more in [
            ("it ends kept connections after seven requests", {"idle": 20_000, "requests": 7}, False, {}),
            ("it ends idle connections just when calls arrive", {"idle": 20, "requests": 1_000}, False, {"pause": 19_000, "count": 60, "ends": 2}),
            ("five reloads under load", {"idle": 20_000, "requests": 1_000}, False, {"reloads": 5}),
            ("bodies of 1.5 MB behind an interim answer", {"idle": 20_000, "requests": 1_000}, False, {"count": 12, "body": BODY}),
            ("HTTP/2: GOAWAY after seven requests", {"idle": 20_000, "requests": 7}, True, {}),
            ("HTTP/2: five reloads under load", {"idle": 20_000, "requests": 1_000}, True, {"reloads": 5}),
            ("HTTP/2: it ends idle connections just when calls arrive", {"idle": 20, "requests": 1_000}, True, {"pause": 19_000, "count": 60}),
        ]:
            if name == "haproxy" and settings["requests"] == 7:
                continue  # HAProxy has no such limit.

            def run(name: str = name, settings: dict = settings, over_tls: bool = over_tls, more: dict = more, title: str = title) -> None:
                folder = place / f"behind-{name}-{abs(hash(title))}"
                folder.mkdir()
                origin = Origin(name, folder, **settings)
                base = f"https://127.0.0.1:{origin.tls}" if over_tls else f"http://127.0.0.1:{origin.port}"
                check(calls(origin, folder, base, **more))

            yield f"{name} behind the egress", title, run
