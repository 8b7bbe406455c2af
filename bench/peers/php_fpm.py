"""nginx in front of php-fpm, over a unix socket: four static children, one nginx worker."""

import os
import shutil
from pathlib import Path

from harness.certificates import Certificate
from harness.machine import first_line
from harness.processes import Server

from . import App, Missing, Peer, free_port, ini_environment

CHILDREN = 4


def find() -> list[Peer | Missing]:
    fpm, nginx = programs()
    name = f"nginx + php-fpm ({CHILDREN})"
    if not fpm or not nginx:
        return [Missing(name, "install nginx and php-fpm: scripts/setup bench")]
    versions = f"{first_line([str(fpm), '--version'])}; {first_line([nginx, '-v'])}"
    return [Peer(name, lambda app, work, certificate=None: start(name, str(fpm), nginx, app, work, certificate=certificate), versions)]


def programs() -> tuple[Path | None, str | None]:
    fpm = next(iter(sorted(Path("/usr/sbin").glob("php-fpm8.*"), reverse=True)), None)
    return fpm, shutil.which("nginx") or shutil.which("nginx", path="/usr/sbin")


def start(name: str, fpm: str, nginx: str, app: App, work: Path, children: int = CHILDREN,
          certificate: Certificate | None = None, values: dict[str, str] | None = None) -> Server:
    """`values`: further lines of the pool, such as `env[NAME]`."""
    port = free_port()
    socket = work / "fpm.sock"
    root = os.geteuid() == 0
    user = "user = root\ngroup = root\n" if root else ""
    (work / "fpm.conf").write_text(f"""
[global]
error_log = {work}/fpm.log
daemonize = no
[bench]
{user}listen = {socket}
listen.backlog = 1024
pm = static
pm.max_children = {children}
{chr(10).join(f"{name} = {value}" for name, value in (values or {}).items())}
""")
    (work / "nginx.conf").write_text(f"""
{"user root;" if root else ""}
worker_processes 1;
daemon off;
pid {work}/nginx.pid;
error_log {work}/nginx.log warn;
events {{ worker_connections 1024; }}
http {{
    access_log off;
    sendfile on;
    tcp_nodelay on;
    keepalive_requests 100000000;
    client_body_temp_path {work}/body;
    proxy_temp_path {work}/proxy;
    fastcgi_temp_path {work}/fastcgi;
    uwsgi_temp_path {work}/uwsgi;
    scgi_temp_path {work}/scgi;
    server {{
        listen 127.0.0.1:{port} backlog=1024{" ssl http2" if certificate else ""};
        {f"ssl_certificate {certificate.signed}; ssl_certificate_key {certificate.key};" if certificate else ""}
        root {app.public};
        index index.php;
        location / {{ try_files $uri $uri/ /index.php$is_args$args; }}
        location ~ \\.php$ {{
            include /etc/nginx/fastcgi_params;
            fastcgi_param SCRIPT_FILENAME $document_root$fastcgi_script_name;
            fastcgi_pass unix:{socket};
        }}
    }}
}}
""")
    server = Server(name, f"http{'s' if certificate else ''}://127.0.0.1:{port}{app.path}", work / "output.log")
    flags = ["--allow-to-run-as-root"] if root else []
    server.run([fpm, "--nodaemonize", "--fpm-config", str(work / "fpm.conf"), *flags], ini_environment(work))
    server.run([nginx, "-c", str(work / "nginx.conf"), "-p", str(work)])
    return server
