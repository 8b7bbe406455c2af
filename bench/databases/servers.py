"""Databases of the bench's own: MariaDB, PostgreSQL and Redis in a temporary folder, each on a unix socket and on a port of 127.0.0.1.

Each speaks TLS over TCP too, by a certificate for 127.0.0.1. Each has a user `visitor` with the password `a password` and a hundred things whose amounts are their numbers. PostgreSQL logs in by
SCRAM-SHA-256, as it does by itself.
"""

import os
import pwd
import shutil
import socket
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path

from harness import certificates
from harness.processes import CORES

PASSWORD = "a password"
THINGS = 100


@dataclass
class Database:
    """A running server. `local` and `remote` are what a client connects to: a socket (PostgreSQL: its folder), HOST:PORT."""

    name: str
    title: str
    folder: Path
    process: subprocess.Popen
    local: str
    port: int
    tls_port: int

    def stop(self) -> None:
        self.process.terminate()
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


class Absent(RuntimeError):
    """This server is not installed; says what to install."""


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def _is_root() -> bool:
    return os.geteuid() == 0


def _program(*paths: str) -> str | None:
    return next((str(found) for path in paths for found in sorted(Path("/").glob(path[1:]), reverse=True)), None)


def pin(pids: list[int], core: int) -> None:
    """All threads of these processes, and of what they will start."""
    for pid in pids:
        subprocess.run(["taskset", "--all-tasks", "--cpu-list", "--pid", str(core), str(pid)], check=False, stdout=subprocess.DEVNULL)


def start_process(command: list[str], log: Path, core: int | None = None, as_user: str | None = None) -> subprocess.Popen:
    with log.open("ab") as out:
        return subprocess.Popen(["taskset", "--cpu-list", str(CORES[-1] if core is None else core), *command], stdin=subprocess.DEVNULL, stdout=out,
                                stderr=out, cwd="/", start_new_session=True, user=as_user, group=as_user)


def _wait_for(text: str, log: Path, process: subprocess.Popen) -> None:
    deadline = time.monotonic() + 60
    while text not in log.read_text(errors="replace"):
        if process.poll() is not None or time.monotonic() > deadline:
            raise RuntimeError(f"{process.args[3]} does not start: {log.read_text(errors='replace')[-1000:]}")
        time.sleep(0.05)


def certificate(folder: Path) -> certificates.Certificate:
    """In a folder that every server's user may enter."""
    place = folder / "tls"
    place.mkdir()
    place.chmod(0o755)
    return certificates.make(place)


def mariadb(folder: Path) -> Database:
    program = _program("/usr/sbin/mariadbd", "/usr/libexec/mariadbd")
    if not program:
        raise Absent("apt-get install mariadb-server-core")
    data, log, port = folder / "data", folder / "log", free_port()
    log.touch()
    base = [program, "--no-defaults", f"--datadir={data}", "--innodb-buffer-pool-size=16M", "--innodb-log-file-size=4M"]
    base += ["--user=root"] if _is_root() else []
    tables = [next(Path("/usr/share").glob(f"m*/m*_{name}.sql")).read_text()
              for name in ("system_tables", "performance_tables", "system_tables_data")]
    sql = "use mysql;\nset @auth_root_socket=null;\n" + "".join(tables)
    # MariaDB 10.11 crashes in a bootstrap now and then.
    for _ in range(5):
        shutil.rmtree(data, ignore_errors=True)
        (data / "mysql").mkdir(parents=True)
        made = subprocess.run([*base, "--bootstrap", "--log-warnings=0"], input=sql, text=True, capture_output=True)
        if made.returncode == 0:
            break
    else:
        raise RuntimeError(made.stderr[-1000:])
    (folder / "init.sql").write_text(
        "create database if not exists shop;\ncreate table if not exists shop.things (id int primary key, amount int) engine=innodb;\n"
        f"insert into shop.things values {','.join(f'({i},{i})' for i in range(1, THINGS + 1))};\n"
        f"create user visitor@'%' identified by '{PASSWORD}';\ngrant all on shop.* to visitor@'%';\n"
        f"create user visitor@localhost identified by '{PASSWORD}';\ngrant all on shop.* to visitor@localhost;\n")
    tls = certificate(folder)
    base += [f"--ssl-ca={tls.authority}", f"--ssl-cert={tls.signed}", f"--ssl-key={tls.key}"]
    process = start_process([*base, f"--socket={folder}/socket", f"--pid-file={folder}/pid", f"--init-file={folder}/init.sql",
                             "--bind-address=127.0.0.1", f"--port={port}", "--skip-name-resolve"], log)
    _wait_for("ready for connections", log, process)
    return Database("mysql", "MariaDB", folder, process, f"{folder}/socket", port, port)


def postgres(folder: Path) -> Database:
    bin_folder = _program("/usr/lib/postgresql/*/bin")
    if not bin_folder:
        raise Absent("apt-get install postgresql")
    data, log, port = folder / "data", folder / "log", free_port()
    log.touch()
    # It refuses to run as root.
    user = "postgres" if _is_root() else None
    if user:
        folder.chmod(0o755)
        os.chown(folder, pwd.getpwnam(user).pw_uid, -1)
    subprocess.run([f"{bin_folder}/initdb", "-D", str(data), "--auth=trust", "--username=postgres", "--no-sync", "--encoding=UTF8"], check=True,
                   capture_output=True, user=user, group=user, cwd="/")
    (data / "pg_hba.conf").write_text("local all postgres trust\nlocal all all scram-sha-256\nhost all all 127.0.0.1/32 scram-sha-256\n")
    tls = certificate(folder)
    if user:
        os.chown(tls.key, pwd.getpwnam(user).pw_uid, -1)
    process = start_process([f"{bin_folder}/postgres", "-D", str(data), "-c", "listen_addresses=127.0.0.1", "-c", f"port={port}", "-c",
                             f"unix_socket_directories={folder}", "-c", "shared_buffers=16MB", "-c", "ssl=on", "-c", f"ssl_cert_file={tls.signed}", "-c",
                             f"ssl_key_file={tls.key}"], log, as_user=user)
    _wait_for("database system is ready to accept connections", log, process)
    sql = (f"create role visitor login password '{PASSWORD}';\ncreate database shop owner visitor;\n\\connect shop\n"
           "create table things (id int primary key, amount int);\n"
           f"insert into things select n, n from generate_series(1, {THINGS}) n;\ngrant all on things to visitor;\nanalyze things;\n")
    subprocess.run([f"{bin_folder}/psql", "-v", "ON_ERROR_STOP=1", "-U", "postgres", "-d", "postgres", "-h", str(folder), "-p", str(port)],
                   input=sql, text=True, check=True, capture_output=True, cwd="/")
    return Database("pgsql", "PostgreSQL", folder, process, f"{folder}:{port}", port, port)


def redis(folder: Path) -> Database:
    program = shutil.which("redis-server")
    if not program:
        raise Absent("apt-get install redis-server")
    log, port, tls_port = folder / "log", free_port(), free_port()
    log.touch()
    tls = certificate(folder)
    process = start_process([program, "--port", str(port), "--bind", "127.0.0.1", "--save", "", "--requirepass", PASSWORD, "--unixsocket",
                             f"{folder}/socket", "--tls-port", str(tls_port), "--tls-cert-file", str(tls.signed), "--tls-key-file", str(tls.key),
                             "--tls-ca-cert-file", str(tls.authority), "--tls-auth-clients", "no"], log)
    _wait_for("eady to accept connections", log, process)
    with socket.create_connection(("127.0.0.1", port)) as client:
        commands = [["AUTH", PASSWORD]] + [["SET", f"thing:{i}", str(i)] for i in range(1, THINGS + 1)]
        client.sendall(b"".join(f"*{len(c)}\r\n".encode() + b"".join(f"${len(w)}\r\n{w}\r\n".encode() for w in c) for c in commands))
        answers = b""
        while answers.count(b"\r\n") < len(commands):
            answers += client.recv(65536)
    return Database("redis", "Redis", folder, process, f"{folder}/socket", port, tls_port)


def pgbouncer(folder: Path, database: Database) -> tuple[subprocess.Popen, str] | None:
    """A pooler in session mode between a unix socket, where nobody has to log in, and the server's; None: not installed. Returns it and what
    a client connects to."""
    program = shutil.which("pgbouncer") or shutil.which("pgbouncer", path="/usr/sbin")
    if not program:
        return None
    port, log = free_port(), folder / "log"
    log.touch()
    (folder / "users").write_text(f'"visitor" "{PASSWORD}"\n')
    (folder / "ini").write_text(
        f"[databases]\nshop = host={database.folder} port={database.port}\n[pgbouncer]\nlisten_addr =\nlisten_port = {port}\n"
        f"unix_socket_dir = {folder}\nauth_type = trust\nauth_file = {folder}/users\npool_mode = session\nmax_client_conn = 50\n"
        "default_pool_size = 20\nmin_pool_size = 2\nlog_connections = 0\nlog_disconnections = 0\nserver_reset_query = DISCARD ALL\n")
    user = "postgres" if _is_root() else None
    if user:
        for path in (folder, folder / "users", folder / "ini", log):
            os.chown(path, pwd.getpwnam(user).pw_uid, -1)
        folder.chmod(0o755)
    process = start_process([program, str(folder / "ini")], log, as_user=user)
    deadline = time.monotonic() + 10
    while not (folder / f".s.PGSQL.{port}").exists():
        if process.poll() is not None or time.monotonic() > deadline:
            raise RuntimeError(f"pgbouncer does not start: {log.read_text()[-500:]}")
        time.sleep(0.05)
    return process, f"{folder}:{port}"
