"""Reads .phpt files as php-src's run-tests.php does: sections, settings, environment and the request of each test."""

import gzip
import hashlib
import json
import re
import subprocess
import zlib
from dataclasses import dataclass, field
from pathlib import Path

# run-tests.php, $ini_overwrites. The same lines are in the php.ini of php-cgi and of Hearth.
RUN_TESTS_INI = """
output_handler=
open_basedir=
disable_functions=
output_buffering=Off
error_reporting=32767
display_errors=1
display_startup_errors=1
log_errors=0
html_errors=0
report_memleaks=1
docref_root=
docref_ext=.html
error_prepend_string=
error_append_string=
auto_prepend_file=
auto_append_file=
ignore_repeated_errors=0
precision=14
serialize_precision=-1
memory_limit=128M
opcache.file_update_protection=0
opcache.revalidate_freq=0
zend.assertions=1
zend.exception_ignore_args=0
zend.exception_string_param_max_len=15
short_open_tag=0
"""
# What php-cgi takes without a php.ini, where Hearth has the values of php.ini-production.
PHP_DEFAULTS = """
variables_order=EGPCS
request_order=EGPCS
register_argc_argv=1
opcache.enable=1
"""
PHP_INI_USER = 1
# They mean nothing to a SAPI other than the command line, or are run-tests.php's own.
IGNORED_SETTINGS = {"opcache.enable_cli", "opcache.preload_user", "report_zend_debug", "track_errors"}
SECTION = re.compile(rb"^--([_A-Z]+)--\s*$")
# Sections that a web server has no place for.
OF_A_COMMAND_LINE = {b"STDIN": "standard input", b"PHPDBG": "phpdbg", b"CAPTURE_STDIO": "standard output apart from standard error"}


@dataclass
class Case:
    name: str                       # path of the .phpt below the sources; a redirected test has `(via folder)` behind it
    path: str                       # the .phpt itself
    sections: dict[bytes, bytes]
    redirected: dict[str, str] = field(default_factory=dict)  # environment of a redirected test
    broken: str = ""                # why run-tests.php would not run it

    @property
    def folder(self) -> str:
        parts = self.path.split("/")
        return "/".join(parts[:2]) if parts[0] in ("ext", "sapi", "tests") else parts[0] + "/tests"

    def section(self, name: str) -> bytes:
        return self.sections.get(name.encode(), b"")

    def has(self, name: str) -> bool:
        return name.encode() in self.sections

    def digest(self) -> str:
        text = repr((self.name, sorted(self.sections.items()), sorted(self.redirected.items())))
        return hashlib.sha256(text.encode()).hexdigest()


def sections_of(text: bytes) -> dict[bytes, bytes]:
    sections: dict[bytes, bytes] = {}
    name, done = b"", False
    for line in text.splitlines(keepends=True):
        found = SECTION.match(line)
        if found:
            name, done = found[1], False
            sections[name] = b""
            continue
        if not name or done:
            continue
        sections[name] += line
        if name in (b"FILE", b"FILEEOF", b"FILE_EXTERNAL") and re.match(rb"^\s*===DONE===\s*$", line):
            done = True
    if b"FILEEOF" in sections:
        sections[b"FILE"] = re.sub(rb"[\r\n]+$", b"", sections.pop(b"FILEEOF"))
    return sections


def read_case(source: Path, path: str) -> Case:
    file = source / path
    case = Case(path, path, sections_of(file.read_bytes()))
    for name in (b"FILE", b"EXPECT", b"EXPECTF", b"EXPECTREGEX"):
        external = case.sections.pop(name + b"_EXTERNAL", None)
        if external is not None:
            outside = file.parent / external.decode().strip().replace("..", "")
            if outside.exists():
                case.sections[name] = outside.read_bytes()
            else:
                case.broken = f"{outside.name} is missing"
    if not case.has("REDIRECTTEST"):
        if not case.has("FILE"):
            case.broken = "no --FILE--"
        elif sum(case.has(name) for name in ("EXPECT", "EXPECTF", "EXPECTREGEX")) != 1:
            case.broken = "not exactly one of --EXPECT--, --EXPECTF--, --EXPECTREGEX--"
    return case


def redirected(source: Path, case: Case, php: str) -> list[Case]:
    """The tests that a --REDIRECTTEST-- names, each with its environment."""
    code = case.section("REDIRECTTEST").decode()
    said = subprocess.run([php, "-n", "-r", f"echo json_encode((function () {{ {code} }})());"], cwd=source, capture_output=True, text=True, check=False)
    try:
        target = json.loads(said.stdout)
        folder, environment = target["TESTS"], target.get("ENV") or {}
    except (ValueError, KeyError, TypeError):
        return []
    environment["REDIR_TEST_DIR"] = str(source / folder) + "/"
    found = []
    for test in sorted((source / folder).rglob("*.phpt")):
        other = read_case(source, str(test.relative_to(source)))
        other.name = f"{case.path}: {test.name}"
        other.redirected = {name: str(value) for name, value in environment.items()}
        for name in (b"SKIPIF", b"EXTENSIONS"):
            if name == b"EXTENSIONS" and name in case.sections:
                other.sections[name] = other.sections.get(name, b"") + b"\n" + case.sections[name]
        found.append(other)
    return found


def all_cases(source: Path, folders: list[str], php: str) -> list[Case]:
    found = []
    for folder in folders:
        for test in sorted((source / folder).rglob("*.phpt")):
            case = read_case(source, str(test.relative_to(source)))
            if case.has("REDIRECTTEST"):
                found += redirected(source, case, php)
            else:
                found.append(case)
    return list({case.name: case for case in found}.values())


def extensions_of(case: Case) -> list[str]:
    return [name.strip().lower() for name in case.section("EXTENSIONS").decode("latin-1").split("\n") if name.strip()]


def settings_of(case: Case, folder: Path, temporary: Path) -> dict[str, str]:
    text = case.section("INI").decode("latin-1").replace("{PWD}", str(folder)).replace("{TMP}", str(temporary))
    text = re.sub(r"\{MAIL:(\S+)\}", r"tee \1 >/dev/null", text)
    settings = {}
    for line in re.split(r"[\n\r]+", text):
        name, equals, value = line.strip().partition("=")
        if equals and name.strip():
            value = value.strip()
            if len(value) > 1 and value[0] == value[-1] == '"':
                value = value[1:-1]
            settings[name.strip()] = value
    return settings


def as_ini(value: str) -> str:
    """The value as PHP holds it."""
    plain = {"on": "1", "yes": "1", "true": "1", "off": "", "no": "", "false": "", "none": "", "null": ""}
    return plain.get(value.lower(), value)


def at_start_only(settings: dict[str, str], known: dict[str, dict]) -> list[str]:
    """The settings that a script cannot make and that differ from what is set already."""
    needed = []
    for name, value in settings.items():
        if name in IGNORED_SETTINGS:
            continue
        if name in ("extension", "zend_extension"):
            needed.append(name)
        entry = known.get(name)
        if entry is not None and not entry["access"] & PHP_INI_USER and as_ini(value) not in (as_ini(entry["global_value"] or ""), entry["global_value"] or "0"):
            needed.append(name)
    return needed


def environment_of(case: Case, folder: Path) -> dict[str, str]:
    environment = dict(case.redirected)
    for line in case.section("ENV").decode("latin-1").replace("{PWD}", str(folder)).split("\n"):
        name, equals, value = line.strip().partition("=")
        if equals and name:
            environment[name] = value
    return environment


@dataclass
class Request:
    method: str
    query: str
    body: bytes
    fields: dict[str, str]  # of HTTP, by name


def request_of(case: Case, environment: dict[str, str]) -> Request:
    """Takes the variables of CGI out of `environment`."""
    fields = {}
    if case.has("COOKIE"):
        # No field of HTTP holds a line end; PHP skips blanks before a cookie's name as it does line ends.
        fields["Cookie"] = " ".join(case.section("COOKIE").decode("latin-1").split("\n")).strip()
    content = environment.pop("CONTENT_TYPE", "")
    query = environment.pop("QUERY_STRING", "") or case.section("GET").strip().decode("latin-1")
    for name in ("CONTENT_LENGTH", "REDIRECT_STATUS", "PATH_TRANSLATED"):
        environment.pop(name, None)
    for name in [name for name in environment if name.startswith("HTTP_")]:
        fields[name[5:].replace("_", "-").title()] = environment.pop(name)
    method, body = "GET", b""
    for section in ("POST_RAW", "PUT"):
        if case.section(section):
            method = "POST" if section == "POST_RAW" else "PUT"
            lines = []
            for line in case.section(section).strip().split(b"\n"):
                said = re.match(rb"^Content-Type:(.*)", line, re.IGNORECASE)
                if said and not content:
                    content = said[1].decode("latin-1").strip()
                else:
                    lines.append(line)
            body = b"\n".join(lines)
            break
    else:
        for section, packed in (("POST", lambda text: text), ("GZIP_POST", gzip.compress), ("DEFLATE_POST", zlib.compress)):
            if case.section(section):
                method, body = "POST", packed(case.section(section).strip())
                content = content if content and section == "POST" else "application/x-www-form-urlencoded"
                if section != "POST":
                    fields["Content-Encoding"] = section[:-5].lower()
                break
    method = environment.pop("REQUEST_METHOD", "") or method
    if content:
        fields["Content-Type"] = content
    return Request(method, query, body, fields)


def serialized(value: object) -> bytes:
    """The value in the format of PHP's serialize()."""
    if isinstance(value, (str, bytes)):
        text = value.encode("latin-1") if isinstance(value, str) else value
        return b's:%d:"%s";' % (len(text), text)
    if isinstance(value, dict):
        return b"a:%d:{%s}" % (len(value), b"".join(serialized(key) + serialized(item) for key, item in value.items()))
    if isinstance(value, list):
        return b"a:%d:{%s}" % (len(value), b"".join(b"i:%d;%s" % (at, serialized(item)) for at, item in enumerate(value)))
    raise TypeError(type(value))
