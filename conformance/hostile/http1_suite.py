"""Sends each case of http1.py to Hearth, and to nginx with php-fpm where both are installed."""

import shutil
import socket
from pathlib import Path

import servers
from http1 import Case, all_cases
from servers import Outcome, Reply, Site

AFTER = b"GET /after HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n"


def attempt(port: int, case: Case) -> tuple[list[Reply], bytes, bool]:
    with socket.create_connection(("127.0.0.1", port), servers.ANSWER_SECONDS) as connection:
        try:
            connection.sendall(case.request + (b"" if case.half_close else AFTER))
            connection.shutdown(socket.SHUT_WR) if case.half_close else None
        except (BrokenPipeError, ConnectionResetError):
            pass  # refused before the whole request was sent
        return servers.read_replies(connection)


def judge(case: Case, replies: list[Reply], rest: bytes, closed: bool, ran: list[tuple[str, str, bytes]]) -> str | None:
    """Why an outcome is wrong."""
    wanted = [case.run] if case.run else []
    others = [run for run in ran if run[1] != "/after"]
    if not closed:
        return "the connection stayed open without an answer"
    if rest:
        return f"bytes that are no answer: {rest[:80]!r}"
    statuses = [reply.status for reply in replies]
    if any(b"secret" in reply.body for reply in replies if not reply.body.startswith(b"[")):
        return "a secret was sent"
    if others and others != wanted:
        return f"PHP ran {others}, answers {statuses}"
    if others:
        return None if statuses and statuses[0] == 200 else f"PHP ran it, answers {statuses}"
    if wanted and not case.refused:
        return f"refused with {statuses}"
    if not statuses:
        # A request that never became one may be left without an answer.
        return None if case.half_close else "closed without an answer"
    if statuses[0] not in case.refused:
        return f"answered with {statuses}"
    return None


def run_beside(folder: Path) -> dict[str, str | None] | None:
    """The verdicts about nginx and php-fpm."""
    if not shutil.which("nginx") or not servers.php_fpm():
        return None
    site = Site(folder)
    with servers.nginx_with_php_fpm(site) as port:
        verdicts = {}
        for case in all_cases():
            outcome = attempt(port, case)
            verdicts[case.name] = judge(case, *outcome, site.ran())
        return verdicts


def run(folder: Path) -> Outcome:
    outcome = Outcome(what="raw HTTP/1.1 requests, read by RFC 9110 and 9112")
    site = Site(folder / "hearth")
    with servers.hearth(site) as (port, process):
        for case in all_cases():
            attempted = attempt(port, case)
            verdict = judge(case, *attempted, site.ran())
            outcome.judge(verdict is None, case.name, verdict)
        outcome.judge(process.poll() is None, "the server is still there", process.returncode)
    beside = run_beside(folder / "peer")
    if beside is None:
        outcome.notes.append("nginx and php-fpm are not both installed: nothing beside")
    else:
        lenient = sum(verdict is not None for verdict in beside.values())
        outcome.notes.append(f"nginx with php-fpm decides {lenient} of {len(beside)} otherwise")
    return outcome
