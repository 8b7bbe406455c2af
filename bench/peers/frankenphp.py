"""FrankenPHP, classic and worker. FRANKENPHP=path names a binary that is not on the PATH."""

import os
import shutil
from pathlib import Path

from harness.certificates import Certificate
from harness.machine import first_line
from harness.processes import Server

from . import App, Missing, Peer, free_port, ini_environment


def find() -> list[Peer | Missing]:
    binary = os.environ.get("FRANKENPHP") or shutil.which("frankenphp")
    if not binary:
        return [Missing("FrankenPHP", "no `frankenphp` on the PATH; FRANKENPHP=path names one")]
    version = f"FrankenPHP on Caddy {first_line([binary, 'version'])}"
    # Built against a PHP without thread safety it runs one PHP thread, and says so when asked for more.
    threads = int(os.environ.get("FRANKENPHP_THREADS", "1"))
    return [
        Peer(f"FrankenPHP {way} ({threads})",
             lambda app, work, certificate=None, way=way: _start(f"FrankenPHP {way} ({threads})", binary, threads, way, app, work, certificate),
             version)
        for way in ("classic", "worker")
    ]


def _start(name: str, binary: str, threads: int, way: str, app: App, work: Path,
           certificate: Certificate | None) -> Server:
    port = free_port()
    scheme = "https" if certificate else "http"
    # Without a limit of its own a worker scales to a second thread, which a PHP without thread safety does not survive.
    worker = f"""worker {{
            file {app.worker_script}
            num {threads}
            max_threads {threads}
            match *
        }}"""
    # It wants one thread more than workers hold.
    total = threads if way == "classic" else threads + 1
    (work / "Caddyfile").write_text(f"""
{{
    admin off
    auto_https off
    persist_config off
    log {{
        level ERROR
    }}
    frankenphp {{
        num_threads {total}
        max_threads {total}
    }}
}}
{scheme}://127.0.0.1:{port} {{
    {f"tls {certificate.signed} {certificate.key}" if certificate else ""}
    root * {app.public}
    php_server {{
        {worker if way == "worker" else ""}
    }}
}}
""")
    server = Server(name, f"{scheme}://127.0.0.1:{port}{app.path}", work / "output.log")
    home = {"HOME": str(work), "XDG_DATA_HOME": str(work), "XDG_CONFIG_HOME": str(work)}
    server.run([binary, "run", "--config", str(work / "Caddyfile"), "--adapter", "caddyfile"],
               ini_environment(work) | home)
    return server
