"""RoadRunner, two workers over pipes. RR=path names an `rr` that is not on the PATH; ROADRUNNER_PHP=path names the folder with its PHP libraries,
whose version must match (bench/README.md)."""

import json
import os
import shutil
from pathlib import Path

from harness.certificates import Certificate
from harness.machine import first_line
from harness.processes import Server

from . import App, Missing, Peer, free_port, ini_environment

WORKERS = 2
SCRIPT = Path(__file__).with_name("roadrunner.php")
PACKAGES = ("roadrunner-http", "roadrunner-worker", "goridge")


def find() -> list[Peer | Missing]:
    program = os.environ.get("RR") or shutil.which("rr")
    libraries = Path(os.environ.get("ROADRUNNER_PHP", "/nothing"))
    php = shutil.which("php")
    name = f"RoadRunner ({WORKERS})"
    if not program or not php:
        return [Missing("RoadRunner", "no `rr` on the PATH; RR=path names one")]
    missing = [package for package in PACKAGES if not (libraries / "spiral" / package / "src").is_dir()]
    if missing:
        return [Missing("RoadRunner", f"no spiral/{missing[0]}; ROADRUNNER_PHP=path names a folder with spiral/{{{','.join(PACKAGES)}}}")]
    return [Peer(name, lambda app, work, certificate=None: _start(name, program, php, libraries, app, work, certificate),
                 f"RoadRunner: {first_line([program, '--version'])}")]


def _start(name: str, program: str, php: str, libraries: Path, app: App, work: Path, certificate: Certificate | None) -> Server:
    port = free_port()
    address = f"127.0.0.1:{port}"
    listens = {"ssl": {"address": address, "cert": str(certificate.signed), "key": str(certificate.key)}} if certificate else {"address": address}
    configuration = {
        "version": "3",
        "server": {"command": [php, str(SCRIPT), str(libraries), app.name, str(app.folder)], "relay": "pipes"},
        "http": {**listens, "access_logs": False, "raw_body": True, "pool": {"num_workers": WORKERS}},
        "logs": {"mode": "production", "level": "error"},
    }
    # JSON is YAML, too.
    (work / "rr.yaml").write_text(json.dumps(configuration))
    server = Server(name, f"http{'s' if certificate else ''}://{address}{app.path}", work / "output.log")
    server.run([program, "serve", "--config", str(work / "rr.yaml"), "-w", str(work)], ini_environment(work))
    return server
