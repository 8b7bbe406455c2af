"""Runs a real `hearth` as packaging/ says containers run it: with the settings of the ConfigMap, under packaging/seccomp.json, on a read-only root, as the
image's user; and under profiles that are wrong. scripts/test-containers runs it. As root. The last line is `N passed, N failed`.

HEARTH_BIN, HEARTH_WORKER_DIR: programs. Nothing waits for a clock but limits on what must end.
"""

import http.client
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
import tomllib
from pathlib import Path

import yaml

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
PACKAGING = ROOT / "packaging"
PROFILE = PACKAGING / "seccomp.json"
WORKER = HERE / "application/worker.php"
HEARTH = os.environ["HEARTH_BIN"]
# linux/sched.h, linux/kcmp.h
CLONE_VM, KCMP_FILE, KCMP_VM = 0x100, 0, 1
TOKEN = "a-token-for-the-tests"
# What must end within this many seconds.
LIMIT = 60
passed = failed = 0


def manifest(name: str) -> dict:
    return yaml.safe_load((PACKAGING / "kubernetes" / f"{name}.yaml").read_text())


DEPLOYMENT = manifest("deployment")["spec"]["template"]["spec"]
CONTAINER = DEPLOYMENT["containers"][0]
SETTINGS = manifest("configmap")["data"]["hearth.toml"]
USER = DEPLOYMENT["securityContext"]["runAsUser"]
WRITABLE = [it["mountPath"] for it in CONTAINER["volumeMounts"] if not it.get("readOnly")]


def seconds(duration: str) -> float:
    number, unit = re.fullmatch(r"(\d+)(ms|s|m|h)", duration).groups()
    return int(number) * {"ms": 0.001, "s": 1, "m": 60, "h": 3600}[unit]


def setting(section: str, key: str) -> str:
    return tomllib.loads(SETTINGS)[section][key]


def check(name, test) -> None:
    """Counts one test: it returns nothing, or raises what is wrong."""
    global passed, failed
    try:
        test()
        passed += 1
        print(f"ok     {name}", flush=True)
    except Exception as failure:  # whatever is wrong
        failed += 1
        print(f"FAILED {name}\n    {type(failure).__name__}: {str(failure)[:1500]}", flush=True)


class Server:
    """A `hearth`, in its own session, ended with everything that it started."""

    host = "127.0.0.1"

    def __init__(self, command: list, **environment: str):
        self.lines: list = []
        self.ports: dict = {}
        self.changed = threading.Condition()
        inherited = {name: os.environ[name] for name in ("PATH", "HEARTH_WORKER_DIR", "LANG") if name in os.environ}
        self.process = subprocess.Popen(command, env={"HEARTH_LOG_FORMAT": "text", **inherited, **environment}, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                                        text=True, errors="replace", start_new_session=True)
        self.reader = threading.Thread(target=self.read, daemon=True)
        self.reader.start()

    def read(self) -> None:
        for line in self.process.stdout:
            with self.changed:
                self.lines.append(line.rstrip())
                for name, port in re.findall(r"\b(ready|admin) on https?://[\d.]+:(\d+)", line):
                    self.ports.setdefault(name, int(port))
                self.changed.notify_all()
        with self.changed:
            self.ports.setdefault("ended", 0)
            self.changed.notify_all()

    def until(self, *names: str) -> "Server":
        """Waits for one of these lines, or for the end of the output."""
        with self.changed:
            if not self.changed.wait_for(lambda: "ended" in self.ports or any(name in self.ports for name in names), LIMIT):
                raise TimeoutError("hangs:\n" + "\n".join(self.lines[-20:]))
        return self

    def ready(self) -> "Server":
        if "ready" not in self.until("ready").ports:
            raise RuntimeError("never ready:\n" + "\n".join(self.lines[-20:]))
        return self

    def get(self, path: str, port: str = "ready", headers: dict | None = None) -> tuple:
        connection = http.client.HTTPConnection(self.host, self.ports[port], timeout=LIMIT)
        connection.request("GET", path, headers=headers or {})
        answer = connection.getresponse()
        return answer.status, answer.read().decode()

    def expect(self, path: str, text: str) -> None:
        status, body = self.get(path)
        if status != 200 or text not in body:
            raise AssertionError(f"{path}: {status} {body!r}, not {text!r}")

    def wait(self, limit: float = LIMIT) -> int:
        status = self.process.wait(limit)
        self.reader.join(limit)
        return status

    def __enter__(self) -> "Server":
        return self

    def __exit__(self, *_: object) -> None:
        try:
            os.killpg(self.process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        self.process.wait()


def under(profile: list, *arguments: str) -> list:
    """The deployment's command, confined as it says, with ports of the system's choice."""
    return [str(HERE / "confined"), str(USER), *WRITABLE, "--", str(HERE / "under-profile"), str(PROFILE), *profile, HEARTH, *arguments]


def deployed(folder: Path) -> Server:
    """The container of the deployment: its arguments and environment, with the folder's settings, the tests' application and free ports."""
    (folder / "hearth.toml").write_text(SETTINGS)
    places = {"/etc/hearth/hearth.toml": str(folder / "hearth.toml"), "/app": str(WORKER)}
    arguments = [places.get(it, it) for it in CONTAINER["args"]]
    environment = {it["name"]: TOKEN if "valueFrom" in it else it["value"] for it in CONTAINER["env"]}
    return Server(under([], *arguments, "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0"), **environment)


ROUTES = {"/": "hello from", "/session": "visit 1", "/files": "100000 bytes, free: some", "/programs": "exit status 0, 3 lines",
          "/network": "1 ready, 127.0.0.1, bound", "/memory": "40000000 bytes", "/refused": "root is read-only", "/namespace": "refused"}


def in_its_container(folder: Path) -> None:
    with deployed(folder) as server:
        server.ready()

        def answers() -> None:
            for path, text in ROUTES.items():
                server.expect(path, text)

        def probes() -> None:
            for name in ("startupProbe", "readinessProbe", "livenessProbe"):
                probe = CONTAINER[name]["httpGet"]
                if CONTAINER["ports"][1]["name"] != probe["port"] or server.get(probe["path"], "admin") != (200, "ok\n"):
                    raise AssertionError(f"{name}: {server.get(probe['path'], 'admin')}")

        def metric() -> None:
            status, text = server.get("/metrics", "admin", {"Authorization": f"Bearer {TOKEN}"})
            for metric in (it["pods"]["metric"]["name"] for it in manifest("horizontalpodautoscaler")["spec"]["metrics"] if it["type"] == "Pods"):
                if status != 200 or not re.search(rf"^{metric}\{{", text, re.M):
                    raise AssertionError(f"no {metric} in /metrics: {status}")
            if server.get("/metrics", "admin")[0] != 401:
                raise AssertionError("/metrics without the token is open")

        def snapshot() -> None:
            state = json.loads(server.get("/status", "admin", {"Authorization": f"Bearer {TOKEN}"})[1])
            said = [line for line in server.lines if re.search(r"WARN|cannot run|\bfork\b model|instead", line)]
            if "snapshot" not in json.dumps(state.get("pool", state)) or said or state.get("problems"):
                raise AssertionError(f"{said} {state.get('problems')} {json.dumps(state)[:600]}")

        def drain() -> None:
            answers: list = []
            client = threading.Thread(target=lambda: answers.append(server.get("/slow?milliseconds=1500")))
            client.start()
            # The request runs: the status shows it.
            while '"/slow"' not in server.get("/status", "admin", {"Authorization": f"Bearer {TOKEN}"})[1]:
                pass  # asks again
            before = time.monotonic()
            server.process.send_signal(signal.SIGTERM)
            client.join(LIMIT)
            status = server.wait()
            if answers != [(200, "slow but answered")] or status != 0:
                raise AssertionError(f"{answers}, exit status {status}:\n" + "\n".join(server.lines[-10:]))
            if time.monotonic() - before > DEPLOYMENT["terminationGracePeriodSeconds"] - sleep_before_stop():
                raise AssertionError("the drain took longer than the pod has")

        check("a pod's server answers, with PHP's files, sessions, programs and sockets, on a read-only root", answers)
        check("the paths of all probes answer 200", probes)
        check("the metrics of the autoscaler are in /metrics, behind the token", metric)
        check("under packaging/seccomp.json the model is snapshot, and nothing is wrong", snapshot)
        check("TERM drains within terminationGracePeriodSeconds", drain)


def sleep_before_stop() -> float:
    return float(CONTAINER["lifecycle"]["preStop"]["exec"]["command"][1])


def times_fit() -> None:
    grace = DEPLOYMENT["terminationGracePeriodSeconds"]
    if grace <= sleep_before_stop() + seconds(setting("server", "shutdown_patience")):
        raise AssertionError(f"terminationGracePeriodSeconds ({grace}) is too short")
    probe = CONTAINER["startupProbe"]
    if probe["periodSeconds"] * probe["failureThreshold"] <= seconds(setting("php", "boot_timeout")):
        raise AssertionError("the startup probe is less patient than php.boot_timeout")
    for name, service in yaml.safe_load((PACKAGING / "compose.yaml").read_text())["services"].items():
        patience = service.get("environment", {}).get("HEARTH_SERVER_SHUTDOWN_PATIENCE") or service.get("environment", {}).get("HEARTH_REALTIME_DRAIN")
        if service.get("build") and seconds(service["stop_grace_period"]) <= seconds(patience):
            raise AssertionError(f"stop_grace_period of {name} is too short")


def agree_with_the_image() -> None:
    image = (PACKAGING / "Containerfile.serve").read_text()
    exposed = re.search(r"^EXPOSE (.*)$", image, re.M).group(1).split()
    ports = [str(it["containerPort"]) for it in CONTAINER["ports"]]
    if not set(ports) <= set(exposed):
        raise AssertionError(f"ports {ports} are not those of the image: {exposed}")
    if re.findall(r"^USER (\d+):\d+$", image, re.M)[-1] != str(USER):
        raise AssertionError("the user is not the image's")
    set_there = re.findall(r"\b(HEARTH_[A-Z_]+)=", image)
    unset = set(set_there) - {it["name"] for it in CONTAINER["env"]}
    if unset:
        raise AssertionError(f"the image's {unset} would win over hearth.toml")


def checked(text: str, folder: Path) -> subprocess.CompletedProcess:
    path = folder / "checked.toml"
    path.write_text(text)
    return subprocess.run([HEARTH, "check", "--config", str(path), str(WORKER)], text=True, timeout=LIMIT, capture_output=True, check=False,
                          # The pod's ports may be taken on this machine.
                          env={**os.environ, "HEARTH_ADMIN_TOKEN": TOKEN, "HEARTH_HTTP_LISTEN": "127.0.0.1:0", "HEARTH_ADMIN_LISTEN": "127.0.0.1:0"})


def settings_are_accepted(folder: Path) -> None:
    run = checked(SETTINGS, folder)
    if run.returncode:
        raise AssertionError(run.stdout + run.stderr)
    wrong = checked(SETTINGS.replace("workers_max", "wrokers_max"), folder)
    if wrong.returncode == 0 or "wrokers_max" not in wrong.stdout + wrong.stderr:
        raise AssertionError(f"a wrong name is accepted: {wrong}")


def beyond_dockers_default() -> None:
    """Of calls that Docker's default refuses, exactly two, by which a restore asks and which change nothing."""
    entries = json.loads(PROFILE.read_text())["syscalls"]
    default = {"clone", "clone3", "socket"}
    for line in (ROOT / "tests/kernels/seccomp.table").read_text().splitlines():
        profiles, _, calls = line.partition(": ")
        if not line.startswith("#") and ("all" in profiles or "docker" in profiles):
            default.update(calls.split())
    rules = {(name, *((it["index"], it["value"], it["op"]) for it in entry.get("args", []))) for entry in entries for name in entry["names"] if name not in default}
    if rules != {("unshare", (0, CLONE_VM, "SCMP_CMP_EQ")), ("kcmp", (2, KCMP_FILE, "SCMP_CMP_EQ")), ("kcmp", (2, KCMP_VM, "SCMP_CMP_EQ"))}:
        raise AssertionError(f"other calls than expected: {sorted(rules)}")


def wrong_profile(call: str, expected: str) -> None:
    """Without the call the server either serves, and its log says what is missing, or ends with one clear line. It never hangs."""
    with Server([str(HERE / "under-profile"), str(PROFILE), "--refuse", call, HEARTH, "serve", str(WORKER), "--listen", "127.0.0.1:0"]) as server:
        server.until("ready")
        if "ready" in server.ports:
            server.expect("/", "hello from")
            server.process.send_signal(signal.SIGTERM)
        status = server.wait()
        said = [line for line in server.lines if re.search(expected, line)]
        if len(said) != 1:
            raise AssertionError(f"exit status {status}, {len(said)} lines with {expected!r}:\n" + "\n".join(server.lines[-12:]))


def without_a_writable_tmp() -> None:
    writable = [folder for folder in WRITABLE if folder != "/tmp"]
    with Server([str(HERE / "confined"), str(USER), *writable, "--", HEARTH, "serve", str(WORKER), "--listen", "127.0.0.1:0"]) as server:
        status = server.wait()
        said = [line for line in server.lines if re.search(r"^error: .*Read-only file system", line)]
        if status != 1 or len(said) != 1:
            raise AssertionError(f"exit status {status}:\n" + "\n".join(server.lines[-12:]))


def without_shared_memory() -> None:
    hidden = 'umount --lazy /dev/shm 2>/dev/null; [[ ! -e /dev/shm/. ]] || mount -t tmpfs -o ro,size=4k tmpfs /dev/shm; exec "$@"'
    with Server(["unshare", "--mount", "--propagation", "private", "bash", "-c", hidden, "-", HEARTH, "serve", str(WORKER), "--listen", "127.0.0.1:0"]) as server:
        server.ready().expect("/", "hello from")
        if not any("snapshot model" in line for line in server.lines) or any("cannot run here" in line for line in server.lines):
            raise AssertionError("\n".join(server.lines))


def main() -> int:
    with tempfile.TemporaryDirectory(dir=os.environ["CARGO_TARGET_DIR"]) as name:
        folder = Path(name)
        folder.chmod(0o755)
        check("the ConfigMap's settings pass `hearth check`, and a wrong name does not", lambda: settings_are_accepted(folder))
        check("time limits of manifests and compose.yaml fit the settings", times_fit)
        check("deployment.yaml agrees with the image", agree_with_the_image)
        check("packaging/seccomp.json allows unshare(CLONE_VM) and kcmp beyond Docker's default, and nothing else", beyond_dockers_default)
        in_its_container(folder)
    check("without a writable /tmp: one clear line, no hang", without_a_writable_tmp)
    check("without /dev/shm the model is snapshot", without_shared_memory)
    for call, expected in WRONG.items():
        check(f"a profile without {call}: one clear line, no hang", lambda call=call, expected=expected: wrong_profile(call, expected))
    print(f"{passed} passed, {failed} failed")
    return 1 if failed else 0


# Without these tokio would panic, or a start wait without end.
CALLS_OF_THE_START = ["socketpair", "ioctl", "sendto", "recvfrom", "sendmsg", "recvmsg", "shutdown", "socket", "bind", "listen", "getsockname", "connect",
                      "accept4", "epoll_create1", "epoll_ctl", "epoll_wait", "ftruncate", "wait4"]
# Calls that a wrong profile refuses, and the one line that says so: first those without which another model serves, then those without which none can.
WRONG = {
    "memfd_create": "model cannot run here.*memfd_create: operation not permitted",
    "close_range": "model cannot run here.*close_range: operation not permitted",
    "mkdir": "no run folder.*Operation not permitted",
    **{call: f"^error: the system call {call} is refused$" for call in CALLS_OF_THE_START},
    "fcntl": "^hint: .*; or allow the calls .*packaging/seccomp.json",
    "pipe2": "^error: cannot start .*hearth-worker",
    "clone": "^hint: .*; or allow the calls .*packaging/seccomp.json",
    "signalfd4": "^error: .*signalfd: Operation not permitted",
    "getdents64": "^error: no PHP found",
}

if __name__ == "__main__":
    sys.exit(main())
