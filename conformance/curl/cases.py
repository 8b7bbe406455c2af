"""Reads libcurl's test files (tests/data/testN) as far as PHP's curl functions can express them."""

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

# Flags of the tool without and with a value, by the option of ext-curl that means the same. None: it changes what is printed, not what is sent.
PLAIN: dict[str, tuple[str, object] | None] = {
    "-L": ("FOLLOWLOCATION", True), "--location": ("FOLLOWLOCATION", True), "-I": ("NOBODY", True), "--head": ("NOBODY", True), "-G": ("GET", True),
    "--digest": ("HTTPAUTH", 2), "--basic": ("HTTPAUTH", 1), "--anyauth": ("HTTPAUTH", -17), "--compressed": ("ENCODING", ""), "-0": ("HTTP_VERSION", 1),
    "--http1.0": ("HTTP_VERSION", 1), "--fail": ("FAILONERROR", True), "-f": ("FAILONERROR", True), "--post301": ("POSTREDIR", 1), "--post302": ("POSTREDIR", 2),
    "--post303": ("POSTREDIR", 4), "--path-as-is": ("PATH_AS_IS", True), "--raw": ("HTTP_TRANSFER_DECODING", 0), "--tr-encoding": ("TRANSFER_ENCODING", 1),
    "--http0.9": ("HTTP09_ALLOWED", True), "-p": ("HTTPPROXYTUNNEL", True), "--proxytunnel": ("HTTPPROXYTUNNEL", True), "--proxy-digest": ("PROXYAUTH", 2),
    "--proxy-basic": ("PROXYAUTH", 1), "--proxy-anyauth": ("PROXYAUTH", -17), "--ipv4": ("IPRESOLVE", 1), "--ignore-content-length": ("IGNORE_CONTENT_LENGTH", True),
    "--location-trusted": ("UNRESTRICTED_AUTH", True), "-s": None, "-S": None, "-sS": None, "--silent": None, "-i": None, "--include": None, "-v": None,
}
VALUED: dict[str, str | None] = {
    "-u": "USERPWD", "--user": "USERPWD", "-X": "CUSTOMREQUEST", "--request": "CUSTOMREQUEST", "-e": "REFERER", "--referer": "REFERER", "-A": "USERAGENT",
    "--user-agent": "USERAGENT", "-r": "RANGE", "--range": "RANGE", "-x": "PROXY", "--proxy": "PROXY", "-U": "PROXYUSERPWD", "--proxy-user": "PROXYUSERPWD",
    "--noproxy": "NOPROXY", "--max-redirs": "MAXREDIRS", "--max-filesize": "MAXFILESIZE", "--request-target": "REQUEST_TARGET", "-m": "TIMEOUT", "--max-time": "TIMEOUT",
    "-o": None, "--output": None, "-D": None, "-w": None, "--write-out": None, "--libcurl": None, "--stderr": None,
}
LISTS = {"-H": "HTTPHEADER", "--header": "HTTPHEADER", "--resolve": "RESOLVE", "--connect-to": "CONNECT_TO"}
DATA = ("-d", "--data", "--data-ascii", "--data-binary")
NUMBERS = {"MAXREDIRS", "MAXFILESIZE", "TIMEOUT"}
WITH_SHORT_VALUE = "uXeArxUmoDwHdbcFCTz"


class Unsupported(Exception):
    """PHP's curl functions, or this reader, cannot express the test."""


@dataclass
class Case:
    number: int
    name: str
    urls: list[str] = field(default_factory=list)
    options: dict[str, object] = field(default_factory=dict)
    replies: dict[str, bytes] = field(default_factory=dict)
    commands: str = ""


def section(text: bytes, name: str) -> tuple[dict[str, str], bytes] | None:
    found = re.search(rb"<" + name.encode() + rb"(?:\s+([^>]*))?>\r?\n?(.*?)</" + name.encode() + rb">", text, re.DOTALL)
    if not found:
        return None
    attributes = dict(re.findall(r'([\w-]+)="([^"]*)"', (found[1] or b"").decode("latin-1")))
    return attributes, found[2]


def conditions(text: bytes) -> bytes:
    """Takes the lines of `%if FEATURE` as a libcurl with the usual features has them; hyper is not one of those."""
    kept, stack = [], []
    for line in text.splitlines(keepends=True):
        if found := re.match(rb"%if (!?)([\w-]+)", line):
            stack.append((found[2] != b"hyper") != bool(found[1]))
        elif line.startswith(b"%else") and stack:
            stack[-1] = not stack[-1]
        elif line.startswith(b"%endif") and stack:
            stack.pop()
        elif all(stack):
            kept.append(line)
    return b"".join(kept)


def filled(text: bytes, number: int, port: int, folder: Path) -> bytes:
    values = {b"%HOSTIP": b"127.0.0.1", b"%HTTPPORT": b"%d" % port, b"%PROXYPORT": b"%d" % port, b"%TESTNUMBER": b"%d" % number, b"%CLIENTIP": b"127.0.0.1",
              b"%LOGDIR": bytes(folder), b"%PWD": bytes(folder), b"%SRCDIR": bytes(folder), b"%NOLISTENPORT": b"1"}
    for name, value in values.items():
        text = text.replace(name, value)
    text = re.sub(rb"%repeat\[(\d+) x (.*?)\]%", lambda found: found[2] * int(found[1]), text)
    return re.sub(rb"%hex\[(.*?)\]hex%", lambda found: re.sub(rb"%([0-9a-fA-F]{2})", lambda byte: bytes([int(byte[1], 16)]), found[1]), text)


def words_of(command: str) -> Iterator[tuple[str, str | None]]:
    """Flags with their values, and addresses as ("", address)."""
    words = iter(shlex.split(command))
    for word in words:
        if not word.startswith("-") or word == "-":
            yield "", word
        elif word.startswith("--"):
            valued = word in VALUED or word in LISTS or word in DATA or word in ("--cookie", "--cookie-jar", "--form", "--form-string", "--continue-at", "--json", "--upload-file", "--next")
            yield word, next(words, "") if valued and word != "--next" else None
        elif len(word) > 2 and word[1] in WITH_SHORT_VALUE and word not in PLAIN:
            yield word[:2], word[2:]
        elif word[1] in WITH_SHORT_VALUE and len(word) == 2:
            yield word, next(words, "")
        else:
            yield word, None


def translate(case: Case, command: str, folder: Path) -> None:
    options, data = case.options, []
    for flag, value in words_of(command):
        if flag == "":
            case.urls.append(value)
        elif flag in PLAIN:
            if PLAIN[flag]:
                name, meant = PLAIN[flag]
                options[name] = meant if name != "POSTREDIR" else int(options.get(name, 0)) | int(meant)
            if flag == "--location-trusted":
                options["FOLLOWLOCATION"] = True
        elif flag in VALUED:
            if VALUED[flag]:
                options[VALUED[flag]] = int(float(value)) if VALUED[flag] in NUMBERS else value
        elif flag in LISTS:
            if value.startswith("@"):
                raise Unsupported("header lines from a file")
            options.setdefault(LISTS[flag], []).append(value)
        elif flag in DATA:
            if value.startswith("@"):
                path = folder / value[1:]
                if not path.is_file():
                    raise Unsupported("data from a file")
                read = path.read_bytes()
                value = (read if flag == "--data-binary" else read.replace(b"\r", b"").replace(b"\n", b"")).decode("latin-1")
            data.append(value)
        elif flag == "--json":
            data.append(value)
            options.setdefault("HTTPHEADER", []).extend(["Content-Type: application/json", "Accept: application/json"])
        elif flag in ("-b", "--cookie"):
            options["COOKIE" if "=" in value else "COOKIEFILE"] = value
        elif flag in ("-c", "--cookie-jar"):
            options["COOKIEJAR"] = f"{folder}/jar"
        elif flag in ("-C", "--continue-at") and value.isdigit():
            options["RESUME_FROM"] = int(value)
        elif flag in ("-F", "--form") and "=" in value and "=@" not in value and "=<" not in value and ";" not in value:
            name, _, text = value.partition("=")
            options.setdefault("FORM", {})[name] = text.strip('"')
        elif flag in ("-T", "--upload-file") and (folder / value).is_file():
            options["UPLOAD"] = (folder / value).read_bytes().decode("latin-1")
        else:
            raise Unsupported(f"flag {flag}")
    if data:
        options["POSTFIELDS"] = "&".join(data)
    if not case.urls:
        raise Unsupported("no address")


def read(path: Path, port: int, folder: Path) -> Case:
    text = conditions(path.read_bytes())
    number = int(path.name.removeprefix("test"))
    server, command = section(text, "server"), section(text, "command")
    if not server or server[1].split() != [b"http"] or not command or command[0] or section(text, "tool"):
        raise Unsupported("not a test of the tool over HTTP")
    features = (section(text, "features") or ({}, b""))[1].split()
    if other := [feature for feature in features if feature not in (b"cookies", b"crypto", b"digest", b"proxy", b"libz", b"http", b"!hyper", b"file", b"Mime", b"mime")]:
        raise Unsupported(f"feature {other[0].decode()}")
    case = Case(number, (section(text, "name") or ({}, b""))[1].decode("latin-1").strip().splitlines()[0])
    for found in re.finditer(rb"<file\d*\s+name=\"([^\"]+)\"[^>]*>\r?\n?(.*?)</file\d*>", text, re.DOTALL):
        target = Path(filled(found[1], number, port, folder).decode())
        if folder in target.parents:
            target.write_bytes(filled(found[2], number, port, folder))
    reply = section(text, "reply")
    for name in re.findall(rb"<((?:data|connect)\d*)[\s>]", reply[1] if reply else b""):
        attributes, body = section(reply[1], name.decode())
        if "base64" in attributes or "sendzero" in attributes:
            raise Unsupported("a reply in base64")
        body = filled(body, number, port, folder)
        if attributes.get("crlf") == "yes":
            body = re.sub(rb"\r?\n", b"\r\n", body)
        elif attributes.get("nonewline") == "yes":
            body = body.removesuffix(b"\n")
        # The files have bare line ends in heads; the suite's server sends them so, and libcurl takes them.
        case.replies[name.decode()] = body
    case.commands = ((section(reply[1], "servercmd") if reply else None) or ({}, b""))[1].decode("latin-1")
    translate(case, filled(command[1], number, port, folder).decode("latin-1").strip().replace("\n", " "), folder)
    return case
