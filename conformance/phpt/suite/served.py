"""`hearth serve` with one worker, asked for one test after another."""

import collections
import http.client
import json
import os
import re
import subprocess
import time
import urllib.parse
from pathlib import Path

from . import cases
from .answers import Answer
from .php_cgi import SECONDS, Php
from .place import Place
from .server import PhpServer

READY_SECONDS = 60
SAID_AS_IT_IS = "!#$%&'()*+,-./:;=?@[\\]^_`{|}~"


class Hearth(PhpServer):
    def __init__(self, program: Path, model: str, php: Php, place: Place, log: Path) -> None:
        self.program, self.model = program, model
        super().__init__(php, place, log)

    def start(self) -> None:
        self.starts += 1
        script = self.place.folder / ("once.php" if self.model == "request" else "loop.php")
        command = [self.program, "serve", script, "--model", self.model, "--workers", "1", "--listen", "127.0.0.1:0", "--log-level", "info",
                   "--log-format", "json", "--request-timeout", f"{SECONDS}s"]
        own = {"HEARTH_EGRESS_ENABLED": "off", "HEARTH_PHP_WARM_UP": "off", "HEARTH_PHP_VERSION": self.php.minor, "HEARTH_SNAPSHOT_ORACLE": "1",
               "HEARTH_LOG_SLOW_REQUESTS": "off"}
        if worker := os.environ.get("HEARTH_WORKER_DIR"):
            own["HEARTH_LIB_DIR"] = worker
        began = self.log.stat().st_size if self.log.exists() else 0
        with self.log.open("ab") as output:
            self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, cwd=self.place.folder,
                                            env=self.place.environment(self.php.minor) | own)
        deadline = time.monotonic() + READY_SECONDS
        while time.monotonic() < deadline and self.process.poll() is None:
            with self.log.open("rb") as said:
                said.seek(began)
                ready = re.search(rb'"addresses":\["http://127\.0\.0\.1:(\d+)"\].*"message":"ready"', said.read())
            if ready:
                self.port = int(ready[1])
                return
            time.sleep(0.02)
        self.stop()
        raise SystemExit(f"error: hearth was never ready: {self.log.read_text(errors='replace')[-1500:]}")

    def exchange(self, request: cases.Request) -> Answer:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=SECONDS + 10)
        target = "/" + ("?" + urllib.parse.quote(request.query.encode("latin-1"), safe=SAID_AS_IT_IS) if request.query else "")
        try:
            connection.putrequest(request.method, target, skip_host="Host" in request.fields, skip_accept_encoding=True)
            for name, value in request.fields.items():
                connection.putheader(name, value.encode("latin-1"))
            if request.body:
                connection.putheader("Content-Length", str(len(request.body)))
            connection.endheaders(request.body or None)
            response = connection.getresponse()
            body = response.read()
        except (OSError, http.client.HTTPException, ValueError) as error:
            return Answer(b"", [], f"no answer: {type(error).__name__}: {error}")
        finally:
            connection.close()
        headers = [*response.getheaders(), *([("Status", f"{response.status} {response.reason}")] if response.status != 200 else [])]
        lost = ""
        if response.status in (502, 503, 504) and any(name.lower() == "server" or name.lower() == "x-request-id" for name, _ in headers) and b"<?php" not in body:
            lost = f"answered with {response.status} {response.reason}"
        return Answer(body, headers, lost)

    def lives(self) -> collections.Counter[str]:
        """How workers ended, by the log."""
        counted: collections.Counter[str] = collections.Counter()
        for line in self.log.read_text(errors="replace").splitlines():
            try:
                said = json.loads(line)
            except ValueError:
                continue
            if isinstance(said, dict) and ("worker" in str(said.get("message", "")) or said.get("level") == "ERROR"):
                counted[str(said.get("message", ""))[:90] + " " + str(said.get("how", ""))] += 1
        return counted
