"""Plays the Runtime API to the bootstrap of a layer that is unpacked in a root of its own, and judges its answers.

Promises: each check is one invocation or more of a bootstrap in that root, with the environment that Lambda gives it; the last line counts them.
"""

import base64
import http.server
import json
import os
import queue
import subprocess
import sys
import threading
import time


class Api:
    """The Runtime API for one bootstrap."""

    def __init__(self):
        self.events, self.answers, self.count = queue.Queue(), queue.Queue(), 0
        api = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *_):
                pass

            def reply(self, status, fields, body=b""):
                self.send_response(status)
                for name, value in {**fields, "Content-Length": str(len(body))}.items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(body)

            def do_GET(self):
                event = api.events.get()
                api.count += 1
                self.reply(200, {
                    "Lambda-Runtime-Aws-Request-Id": f"id-{api.count}",
                    "Lambda-Runtime-Deadline-Ms": str(int(time.time() * 1000) + 20_000),
                    "Lambda-Runtime-Invoked-Function-Arn": "arn:aws:lambda:eu-west-1:123456789012:function:layer",
                    "Content-Type": "application/json",
                }, event)

            def do_POST(self):
                if "/extension/" in self.path:
                    self.reply(404, {})
                    return
                body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                if self.headers.get("Transfer-Encoding") == "chunked":
                    while size := int(self.rfile.readline(), 16):
                        body += self.rfile.read(size)
                        self.rfile.readline()
                    self.rfile.readline()
                self.reply(202, {})
                api.answers.put((self.path.rsplit("/", 1)[-1], body))

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        # A bootstrap that has ended resets its connection.
        self.server.handle_error = lambda *_: None
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        self.address = f"127.0.0.1:{self.server.server_port}"

    def invoke(self, event):
        self.events.put(json.dumps(event).encode())
        return self.answers.get(timeout=60)


class Bootstrap:
    """/opt/bootstrap with what Lambda sets."""

    def __init__(self, root, handler, **variables):
        self.api = Api()
        self.log = open(f"{root}/tmp/log", "w+b")
        environment = {
            "AWS_LAMBDA_RUNTIME_API": self.api.address,
            "_HANDLER": handler,
            "LAMBDA_TASK_ROOT": "/var/task",
            "LAMBDA_RUNTIME_DIR": "/var/runtime",
            "AWS_REGION": "eu-west-1",
            "AWS_LAMBDA_FUNCTION_NAME": "layer",
            "AWS_LAMBDA_FUNCTION_MEMORY_SIZE": "1024",
            "LD_LIBRARY_PATH": "/lib64:/usr/lib64:/var/runtime:/var/runtime/lib:/var/task:/var/task/lib:/opt/lib",
            "PATH": "/usr/local/bin:/usr/bin/:/bin:/opt/bin",
            "LANG": "en_US.UTF-8",
            "TZ": ":UTC",
            **variables,
        }
        self.began = time.monotonic()
        # Lambda's user is none of root's.
        self.process = subprocess.Popen(
            ["/opt/bootstrap"], env=environment, stdin=subprocess.DEVNULL, stdout=self.log, stderr=self.log, cwd="/",
            preexec_fn=lambda: (os.chroot(root), os.chdir("/var/task"), os.setgid(993), os.setuid(993)))

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait()
        self.api.server.shutdown()

    def invoke(self, event):
        return self.api.invoke(event)

    def said(self):
        self.log.seek(0)
        return self.log.read().decode(errors="replace")[-3000:]


class Checks:
    def __init__(self):
        self.passed = self.failed = 0

    def equal(self, what, wanted, got):
        if wanted == got:
            self.passed += 1
            return
        self.failed += 1
        print(f"FAILED {what}\n  wanted: {wanted!r}\n  got:    {got!r}")


def http_event(path, body=None):
    return {
        "version": "2.0", "rawPath": path, "rawQueryString": "a=1", "headers": {"host": "example.org"}, "isBase64Encoded": body is not None,
        "body": base64.b64encode(body).decode() if body is not None else None,
        "requestContext": {"http": {"method": "POST" if body is not None else "GET", "path": path, "sourceIp": "192.0.2.1", "protocol": "HTTP/1.1"},
                           "domainName": "x.lambda-url.eu-west-1.on.aws", "stage": "$default"},
    }


def main(root):
    checks = Checks()
    for model in ["snapshot", "request", "worker", "fork"]:
        with Bootstrap(root, "handler.php", HEARTH_PHP_MODEL=model) as bootstrap:
            try:
                kind, body = bootstrap.invoke({"do": "facts"})
                first = time.monotonic() - bootstrap.began
                checks.equal(f"{model}: a function answers", "response", kind)
                facts = json.loads(body)
                for name, wanted in FACTS.items():
                    checks.equal(f"{model}: {name}", wanted, facts.get(name))
                checks.equal(f"{model}: extensions are there", [], [name for name in EXTENSIONS if name not in facts.get("extensions", [])])
                kind, body = bootstrap.invoke({"do": "throw"})
                checks.equal(f"{model}: an error", ("error", "RuntimeException"), (kind, json.loads(body).get("errorType")))
                checks.equal(f"{model}: the next one", ("response", b'"hi"'), bootstrap.invoke({"do": "hi"}))
                print(f"    {model}: {first * 1000:.0f} ms from the start of the bootstrap to the first answer")
                bootstrap.process.terminate()
                checks.equal(f"{model}: exit status", 0, bootstrap.process.wait(30))
            except queue.Empty:
                checks.equal(f"{model}: answers", "answers", bootstrap.said())
    for model, sapi in SAPIS.items():
        boots_ahead = {"HEARTH_PHP_WORKER_SCRIPT": "worker.php"} if model in BOOTED_AHEAD else {}
        with Bootstrap(root, "public/index.php", HEARTH_PHP_MODEL=model, **boots_ahead) as bootstrap:
            try:
                for invocation in ["first", "second"]:
                    kind, body = bootstrap.invoke(http_event("/some/where", b"\xff\x00"))
                    answer = json.loads(body)
                    checks.equal(f"HTTP in {model}: status of the {invocation}", ("response", 200), (kind, answer.get("statusCode")))
                    text = answer.get("body", "")
                    text = base64.b64decode(text).decode() if answer.get("isBase64Encoded") else text
                    wanted = f"POST /some/where?a=1 2 bytes from 192.0.2.1\n{sapi} /opt/etc/php/php.ini hearth mbstring of-the-application"
                    checks.equal(f"HTTP in {model}: what PHP saw of the {invocation}", wanted, text)
                bootstrap.process.terminate()
                checks.equal(f"HTTP in {model}: exit status", 0, bootstrap.process.wait(30))
            except (queue.Empty, json.JSONDecodeError):
                checks.equal(f"HTTP in {model}: answers", "answers", bootstrap.said())
    # As in a container image, whose PATH does not have the layer's programs.
    with Bootstrap(root, "bin/console", PATH="/usr/local/bin:/usr/bin:/bin") as bootstrap:
        try:
            kind, body = bootstrap.invoke({"cli": "greet 'you there'"})
            checks.equal("console: answer", {"exitCode": 0, "output": "cli greets you there\n"}, json.loads(body))
            kind, body = bootstrap.invoke("fail")
            checks.equal("console: failure", ("error", "CommandFailed"), (kind, json.loads(body).get("errorType")))
        except queue.Empty:
            checks.equal("console: answers", "answers", bootstrap.said())
    with Bootstrap(root, "missing.php") as bootstrap:
        try:
            checks.equal("no such file: init error", "error", bootstrap.api.answers.get(timeout=60)[0])
            checks.equal("no such file: exit status", 1, bootstrap.process.wait(30))
        except queue.Empty:
            checks.equal("no such file: said", "said", bootstrap.said())
    print(f"{checks.passed} passed, {checks.failed} failed")
    return checks.failed > 0


FACTS = {
    "version": "8.2",
    "summer": "+02:00",
    "upper": "ÜBER",
    "intl": "1.234,5",
    "opcache": True,
    "sqlite": 42,
    "written": True,
    "ca": True,
    "curl": "OpenSSL",
    "child": "",
    "ini": "/opt/etc/php/php.ini",
}
# PHP's SAPI name in each model that serves HTTP.
SAPIS = {
    "snapshot": "fpm-fcgi", "request": "fpm-fcgi", "worker": "fpm-fcgi", "fork": "fpm-fcgi", "spawn": "fpm-fcgi", "prespawn": "fpm-fcgi",
    "fpm": "fpm-fcgi", "builtin": "cli-server", "cgi": "cgi-fcgi",
}
BOOTED_AHEAD = ["snapshot", "worker", "fork", "prespawn"]
EXTENSIONS = ["curl", "mbstring", "dom", "SimpleXML", "intl", "pdo_sqlite", "sodium", "openssl", "sockets", "fileinfo", "Zend OPcache", "zlib"]

if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
