#!/usr/bin/env python3
"""A runtime that does what each event tells it, right or wrong, and writes down how the Runtime API answered: one JSON line a call,
into the file TRANSCRIPT. The emulator under test starts it, or `run` does beside one that starts nothing."""

import http.client
import json
import os
import sys
import time

API = os.environ["AWS_LAMBDA_RUNTIME_API"]
BASE = "/2018-06-01/runtime"
TOO_LARGE = 6 * 1024 * 1024 + 101
TRANSCRIPT = open(os.environ["TRANSCRIPT"], "a", buffering=1, encoding="utf-8")


def call(method: str, path: str, body: bytes | None = None, headers: dict[str, str] | None = None):
    connection = http.client.HTTPConnection(API, timeout=60)
    connection.request(method, path, body, headers or {})
    answer = connection.getresponse()
    content = answer.read()
    connection.close()
    return answer, content


def write(step: str, answer, content: bytes) -> None:
    try:
        told = json.loads(content)
    except ValueError:
        told = content.decode(errors="replace")
    TRANSCRIPT.write(json.dumps({"step": step, "status": answer.status, "told": told}) + "\n")


def tell(step: str, method: str, path: str, body: bytes | None = None, headers: dict[str, str] | None = None) -> None:
    write(step, *call(method, path, body, headers))


def stream(path: str, trailers: bytes) -> None:
    connection = http.client.HTTPConnection(API, timeout=60)
    connection.putrequest("POST", path)
    connection.putheader("Content-Type", "application/json")
    connection.putheader("Lambda-Runtime-Function-Response-Mode", "streaming")
    connection.putheader("Transfer-Encoding", "chunked")
    connection.putheader("Trailer", "Lambda-Runtime-Function-Error-Type, Lambda-Runtime-Function-Error-Body")
    connection.endheaders()
    for chunk in (b'{"streamed"', b':"true"}'):
        connection.send(b"%x\r\n%s\r\n" % (len(chunk), chunk))
    connection.send(b"0\r\n" + trailers + b"\r\n")
    answer = connection.getresponse()
    write("streamed", answer, answer.read())


def serve(event: dict, request_id: str) -> None:
    what = event.get("do", "answer")
    response, error = f"{BASE}/invocation/{request_id}/response", f"{BASE}/invocation/{request_id}/error"
    failure = json.dumps({"errorMessage": "as told", "errorType": "Told", "stackTrace": ["a", "b"]}).encode()
    kind = {"Lambda-Runtime-Function-Error-Type": event.get("kind", "Function.Told")}
    if what == "answer":
        tell("answered", "POST", response, json.dumps(event).encode())
    elif what == "twice":
        tell("answered", "POST", response, b'"once"')
        tell("answered again", "POST", response, b'"twice"')
        tell("error after the answer", "POST", error, failure, kind)
    elif what == "error":
        tell("failed", "POST", error, failure, kind)
    elif what == "cause":
        body = json.dumps({"errorMessage": "as told", "errorType": "Told", "stackTrace": [], "causeData": {}}).encode()
        tell("failed with a cause", "POST", error, body, kind | {"Content-Type": "application/vnd.aws.lambda.error.cause+json"})
    elif what == "bare error":
        tell("failed in plain text", "POST", error, event["text"].encode(), kind | {"Content-Type": event["type"]})
    elif what == "broken stream":
        trailers = f"Lambda-Runtime-Function-Error-Type: Function.Told\r\nLambda-Runtime-Function-Error-Body: {event['body']}\r\n"
        stream(response, trailers.encode())
    elif what == "large":
        tell("answered with too much", "POST", response, b'"' + b"x" * (TOO_LARGE - 2) + b'"')
    elif what == "mode":
        tell("answered in another mode", "POST", response, b"{}", {"Lambda-Runtime-Function-Response-Mode": "buffered"})
    elif what == "stream":
        stream(response, b"")
    elif what == "other id":
        tell("another id answered", "POST", f"{BASE}/invocation/00000000-0000-4000-8000-000000000000/response", b"1")
        tell("answered", "POST", response, b'"after another"')
    elif what == "next again":
        answer, content = call("GET", f"{BASE}/invocation/next")
        same = answer.getheader("Lambda-Runtime-Aws-Request-Id") == request_id
        TRANSCRIPT.write(json.dumps({"step": "asked again", "status": answer.status, "told": {"the same": same}}) + "\n")
        tell("answered", "POST", response, content)
    elif what == "init error":
        tell("init error after the init", "POST", f"{BASE}/init/error", failure, kind)
        tell("answered", "POST", response, b'"after all"')
    elif what == "headers":
        tell("answered", "POST", response, json.dumps(event["seen"]).encode())
    elif what == "sleep":
        time.sleep(event["seconds"])
        tell("answered late", "POST", response, b'"slept"')


def main() -> None:
    register = "/2020-01-01/extension/register"
    tell("pinged", "GET", "/2018-06-01/ping")
    tell("answered nothing", "POST", f"{BASE}/invocation/00000000-0000-4000-8000-000000000000/response", b"1")
    tell("unknown call", "GET", f"{BASE}/invocation/never")
    if "MANAGED" not in os.environ:
        tell("registered without a name", "POST", register, b'{"events":[]}')
        name = {"Lambda-Extension-Name": "inside"}
        tell("registered for SHUTDOWN", "POST", register, b'{"events":["SHUTDOWN"]}', name)
        tell("registered for nonsense", "POST", register, b'{"events":["NONSENSE"]}', name)
        tell("extension without an identifier", "GET", "/2020-01-01/extension/event/next")
    while True:
        answer, content = call("GET", f"{BASE}/invocation/next")
        if answer.status != 200:
            write("refused", answer, content)
            sys.exit(1)
        event = json.loads(content)
        wanted = ["Lambda-Runtime-Invoked-Function-Arn", "Lambda-Runtime-Trace-Id", "Lambda-Runtime-Client-Context",
                  "Lambda-Runtime-Cognito-Identity", "Lambda-Runtime-Aws-Tenant-Id", "Content-Type"]
        event["seen"] = {name: answer.getheader(name) for name in wanted}
        event["seen"]["deadline"] = 0 < int(answer.getheader("Lambda-Runtime-Deadline-Ms")) / 1000 - time.time() <= 300
        serve(event, answer.getheader("Lambda-Runtime-Aws-Request-Id"))
        TRANSCRIPT.write(json.dumps({"step": "done"}) + "\n")


if __name__ == "__main__":
    main()
