"""Runs two servers with one application and a Redis, and does what docs/guide/replicas.md says, with its settings and its function. scripts/test-containers
runs it, in namespaces of its own: there 127.0.0.2 to 127.0.0.4 are `replicas` in /etc/hosts, and all ports are free.

Promises: a session continues on the other server, and simultaneous requests of it lose nothing; a purge is of one server, and `purge_everywhere()` of all;
servers reload one after the other, and one is replaced by another, while each request of a steady load is answered. The last line is `N passed, N failed`.
"""

import http.client
import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import serve
from redis_server import Redis
from serve import HEARTH, LIMIT, ROOT, TOKEN, Server, check

PAGE = (ROOT / "docs/guide/replicas.md").read_text()
HOSTS = [f"127.0.0.{number}" for number in (2, 3, 4)]
# The page's settings with the address of the tests' Redis.
SETTINGS = re.search(r"```toml\n(\[php\.ini\].*?)```", PAGE, re.S)[1].replace("tcp://redis:6379", "tcp://127.0.0.1:6379")
FUNCTION = re.search(r"```php\n(.*?function purge_everywhere.*?)```", PAGE, re.S)[1]
SCRIPT = r"""<?php
%s
$release = (int) basename(__DIR__);
$routes = [
    '/' => static fn (): string => "release {$release}",
    '/visit' => static function (): string {
        session_start();
        $visits = $_SESSION['visits'] ?? 0;
        usleep((int) ($_GET['microseconds'] ?? 0));
        $_SESSION['visits'] = $visits + 1;
        return "visit {$_SESSION['visits']}";
    },
    '/news' => static function () use ($release): string {
        header('Cache-Control: public, s-maxage=600');
        header('Surrogate-Key: news');
        return "news of release {$release}";
    },
    '/purge' => static fn (): string => hearth_purge('news') . ' purged',
    '/purge-everywhere' => static fn (): string => 'missed: ' . implode(' ', purge_everywhere('news')),
    '/purge-nowhere' => static function (): string {
        $name = getenv('REPLICAS');
        putenv('REPLICAS=replicas.invalid');
        try {
            return 'missed: ' . implode(' ', purge_everywhere('news'));
        } finally {
            putenv("REPLICAS={$name}");
        }
    },
    '/slow' => static function () use ($release): string {
        usleep(500_000);
        return "slow, of release {$release}";
    },
];
while (frankenphp_handle_request(static function () use ($routes): void {
    echo $routes[(string) parse_url($_SERVER['REQUEST_URI'], PHP_URL_PATH)]();
})) {
}
"""


class Replica(Server):
    """A server at an address of its own."""

    def __init__(self, folder: Path, host: str):
        self.host = host
        super().__init__([HEARTH, "serve", str(folder / "current"), "--listen", f"{host}:8080", "--admin", f"{host}:9180",
                          "--run-dir", str(folder / host)], HEARTH_ADMIN_TOKEN=TOKEN, PURGE_TOKEN=TOKEN, REPLICAS="replicas")

    def ask(self, path: str, cookie: str = "") -> tuple:
        connection = http.client.HTTPConnection(self.host, 8080, timeout=LIMIT)
        connection.request("GET", path, headers={"Cookie": cookie} if cookie else {})
        answer = connection.getresponse()
        body = answer.read().decode()
        connection.close()
        return answer.status, body, answer.headers

    def text(self, path: str, cookie: str = "") -> str:
        status, body, _ = self.ask(path, cookie)
        if status != 200:
            raise AssertionError(f"{path} of {self.host}: {status} {body}")
        return body

    def cached(self) -> bool:
        return "hit" in self.ask("/news")[2]["Cache-Status"]


def expect(found: object, wanted: object) -> None:
    if found != wanted:
        raise AssertionError(f"{found!r}, not {wanted!r}")


def session(one: Replica) -> str:
    """The cookie of a new session, of which one visit is counted."""
    _, body, headers = one.ask("/visit")
    expect(body, "visit 1")
    return headers["Set-Cookie"].split(";")[0]


def sessions_continue(one: Replica, other: Replica) -> None:
    cookie = session(one)
    expect([server.text("/visit", cookie) for server in (other, one, other, other)], ["visit 2", "visit 3", "visit 4", "visit 5"])


def no_visit_is_lost(one: Replica, other: Replica) -> None:
    cookie = session(one)
    with ThreadPoolExecutor(8) as clients:
        list(clients.map(lambda number: (one, other)[number % 2].text("/visit?microseconds=2000", cookie), range(40)))
    expect(one.text("/visit", cookie), "visit 42")


def purges(one: Replica, other: Replica) -> None:
    fill(one, other)
    expect(one.text("/purge"), "1 purged")
    expect((one.cached(), other.cached()), (False, True))
    fill(one, other)
    # 127.0.0.4 is a server that is down.
    expect(one.text("/purge-everywhere"), f"missed: {HOSTS[2]}")
    expect((one.cached(), other.cached()), (False, False))
    expect(one.text("/purge-nowhere"), "missed: REPLICAS=replicas.invalid")


def fill(*servers: Replica) -> None:
    for server in servers:
        server.ask("/news")
        expect(server.cached(), True)


def by_hand(folder: Path, one: Replica, other: Replica) -> None:
    fill(one, other)
    for server in (one, other):
        subprocess.run([HEARTH, "purge", "--tag", "news", "--run-dir", str(folder / server.host), str(folder / "current")], check=True, timeout=LIMIT, capture_output=True)
    expect((one.cached(), other.cached()), (False, False))


class Load:
    """Clients that ask the servers in turn until the block ends. `servers` may change meanwhile."""

    def __init__(self, *servers: Replica):
        self.servers, self.ends, self.answers, self.failures = list(servers), False, set(), []
        self.changed, self.turns = threading.Condition(), [0] * 4
        self.threads = [threading.Thread(target=self.run, args=(number,)) for number in range(4)]

    def run(self, thread: int) -> None:
        number = thread
        while not self.ends:
            number += 1
            with self.changed:
                self.turns[thread] += 1
                self.changed.notify_all()
            server = self.servers[number % len(self.servers)]
            try:
                answer = server.text("/slow" if number % 8 == 0 else "/")
                with self.changed:
                    self.answers.add(answer)
                    self.changed.notify_all()
            except Exception as failure:  # whatever a client sees
                self.failures.append(f"{server.host}: {failure!r}")

    def hears(self, *answers: str) -> None:
        """Waits until clients have got these."""
        with self.changed:
            if not self.changed.wait_for(lambda: self.answers.issuperset(answers), LIMIT):
                raise AssertionError(f"{self.answers} have none of {answers}: {self.failures[:3]}")

    def moves_to(self, *servers: Replica) -> None:
        """Clients ask these from now on; returns when each one does."""
        with self.changed:
            self.servers, before = list(servers), list(self.turns)
            if not self.changed.wait_for(lambda: all(now > then for now, then in zip(self.turns, before, strict=True)), LIMIT):
                raise AssertionError(f"clients hang: {self.failures[:3]}")

    def __enter__(self) -> "Load":
        for thread in self.threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.ends = True
        for thread in self.threads:
            thread.join(LIMIT)


def release(folder: Path, number: int) -> None:
    """A folder for the release, and the link to it, changed at once."""
    new = folder / f"releases/{number}"
    new.mkdir(parents=True)
    (new / "worker.php").write_text(SCRIPT % FUNCTION)
    (new / "hearth.toml").write_text(f'{SETTINGS}\n[http]\ncache = true\n[php]\nworker_script = "worker.php"\nworkers = 4\n')
    (folder / "new").symlink_to(f"releases/{number}")
    (folder / "new").rename(folder / "current")


def reloaded(folder: Path, server: Replica) -> None:
    subprocess.run([HEARTH, "reload", "--run-dir", str(folder / server.host), str(folder / "current")], check=True, timeout=LIMIT, capture_output=True)


def reload_one_after_the_other(folder: Path, one: Replica, other: Replica) -> None:
    cookie = session(one)
    fill(one, other)
    with Load(one, other) as load:
        load.hears("release 1", "slow, of release 1")
        release(folder, 2)
        reloaded(folder, one)
        expect((one.text("/"), other.text("/")), ("release 2", "release 1"))
        expect((one.cached(), other.cached()), (False, True))
        expect([server.text("/visit", cookie) for server in (one, other)], ["visit 2", "visit 3"])
        reloaded(folder, other)
        expect((one.text("/"), other.text("/")), ("release 2", "release 2"))
        load.hears("release 2", "slow, of release 2")
    expect(load.failures, [])
    expect(one.text("/visit", cookie), "visit 4")


def replace(folder: Path, one: Replica, other: Replica) -> None:
    cookie = session(one)
    release(folder, 3)
    with Replica(folder, HOSTS[2]) as third:
        with Load(one, other) as load:
            third.ready()
            load.moves_to(other, third)
            # Requests that run there when no others come any more, as at the end of preStop.
            with ThreadPoolExecutor(4) as clients:
                running = [clients.submit(one.text, "/slow") for _ in range(4)]
                while one.get("/status", "admin", {"Authorization": f"Bearer {TOKEN}"})[1].count('"/slow"') < 4 and not any(it.done() for it in running):
                    pass  # asks again
                one.process.send_signal(signal.SIGTERM)
                expect({it.result() for it in running}, {"slow, of release 2"})
            expect(one.wait(), 0)
            load.hears("release 3", "release 2")
        expect(load.failures, [])
        expect([server.text("/visit", cookie) for server in (other, third)], ["visit 2", "visit 3"])
        expect(third.text("/"), "release 3")
        fill(third)
        expect(other.text("/purge-everywhere"), f"missed: {HOSTS[0]}")
        expect(third.cached(), False)


def main() -> int:
    with tempfile.TemporaryDirectory(dir=os.environ["CARGO_TARGET_DIR"]) as name:
        folder = Path(name)
        folder.chmod(0o755)
        release(folder, 1)
        with Redis(6379), Replica(folder, HOSTS[0]) as one, Replica(folder, HOSTS[1]) as other:
            one.ready()
            other.ready()
            check("replicas: a session continues on the other server", lambda: sessions_continue(one, other))
            check("replicas: 40 simultaneous requests of a session on both servers lose no change", lambda: no_visit_is_lost(one, other))
            check("replicas: hearth_purge() is of one server, purge_everywhere() of all, and names the one that is down", lambda: purges(one, other))
            check("replicas: hearth purge empties each", lambda: by_hand(folder, one, other))
            check("replicas: they reload one after the other, and no request fails", lambda: reload_one_after_the_other(folder, one, other))
            check("replicas: a third takes the place of one, and no request fails", lambda: replace(folder, one, other))
    print(f"{serve.passed} passed, {serve.failed} failed")
    return 1 if serve.failed else 0


if __name__ == "__main__":
    sys.exit(main())
