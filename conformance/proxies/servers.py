"""nginx and HAProxy as they stand in front of Hearth and behind it, each on loopback ports of its own."""

import contextlib
import shutil
from collections.abc import Iterator
from pathlib import Path

from common import listening


NGINX = """
daemon off;
master_process off;
pid {folder}/nginx.pid;
error_log {folder}/nginx-error.log;
events {{ worker_connections 512; }}
http {{
    log_format ours '$request_method $request_uri $connection';
    access_log {folder}/nginx-access.log ours;
    client_body_temp_path {folder}/nginx-body;
    proxy_temp_path {folder}/nginx-proxy;
    fastcgi_temp_path {folder}/nginx-fastcgi;
    uwsgi_temp_path {folder}/nginx-uwsgi;
    scgi_temp_path {folder}/nginx-scgi;
    client_max_body_size 64m;
    map $http_upgrade $connection_upgrade {{ default upgrade; '' ''; }}
{content}
}}
"""


@contextlib.contextmanager
def nginx(folder: Path, port: int, content: str) -> Iterator[int]:
    configuration = folder / "nginx.conf"
    configuration.write_text(NGINX.format(folder=folder, content=content))
    with listening([shutil.which("nginx"), "-c", configuration, "-p", folder], port, folder / "nginx.log"):
        yield port


def nginx_front(port: int, hearth: int, realtime: int) -> str:
    headers = 'proxy_set_header Connection ""; proxy_set_header Host $host; proxy_set_header X-Forwarded-For $remote_addr;'
    return f"""
    upstream hearth {{ server 127.0.0.1:{hearth}; keepalive 4; }}
    server {{
        listen 127.0.0.1:{port};
        location / {{ proxy_pass http://hearth; proxy_http_version 1.1; {headers} }}
        location /unbuffered/ {{ proxy_pass http://hearth; proxy_http_version 1.1; proxy_request_buffering off; proxy_buffering off; {headers} }}
        location /old/ {{ proxy_pass http://hearth; proxy_set_header Host $host; }}
        location /short/ {{ proxy_pass http://hearth; proxy_http_version 1.1; proxy_read_timeout 1s; {headers} }}
        location /app/ {{
            proxy_pass http://127.0.0.1:{realtime};
            proxy_http_version 1.1;
            proxy_set_header Upgrade $http_upgrade;
            proxy_set_header Connection $connection_upgrade;
            proxy_set_header Host $host;
        }}
    }}"""


HAPROXY = """
global
    log stderr local0 emerg
defaults
    mode http
    timeout connect 5s
    timeout client 20s
    timeout server 20s
    timeout tunnel 60s
    http-reuse always
frontend front
    bind 127.0.0.1:{port}
    bind 127.0.0.1:{port_h2} proto h2
    http-request set-header X-Forwarded-For %[src]
    use_backend realtime if {{ path_beg /app/ }}
    use_backend h2c if {{ path_beg /h2c/ }}
    use_backend proxied if {{ path_beg /proxied/ }}
    use_backend short if {{ path_beg /short/ }}
    default_backend hearth
backend hearth
    server hearth 127.0.0.1:{hearth} check inter 200
backend short
    timeout server 1s
    server hearth 127.0.0.1:{hearth}
backend h2c
    server hearth 127.0.0.1:{hearth} proto h2
backend proxied
    server hearth 127.0.0.1:{proxied} send-proxy-v2
backend realtime
    server hearth 127.0.0.1:{realtime}
"""


@contextlib.contextmanager
def haproxy(folder: Path, **ports: int) -> Iterator[int]:
    configuration = folder / "haproxy.cfg"
    configuration.write_text(HAPROXY.format(**ports))
    with listening([shutil.which("haproxy"), "-db", "-f", configuration], ports["port"], folder / "haproxy.log"):
        yield ports["port"]


def origin(port: int) -> str:
    """nginx as an origin behind the egress: it closes connections after seven requests, and soon when they are idle."""
    return f"""
    server {{
        listen 127.0.0.1:{port};
        keepalive_requests 7;
        keepalive_timeout 1s;
        location / {{ return 200 "$request_method $request_uri"; }}
        location /redirect {{ return 302 /target; }}
        location /error {{ return 503 "busy"; }}
        location /close {{ keepalive_timeout 0; return 200 "closed"; }}
    }}"""
