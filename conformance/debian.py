"""Source packages of Debian, for suites that come with no binary package: fetched by apt, from the machine's own archives, into target/conformance.

Lists and settings of the machine's apt stay as they are: the lists of source packages are in a folder of their own.
"""

import contextlib
import fcntl
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import common

FOLDER = common.programs().parent / "conformance"


def archives() -> list[str]:
    """`deb-src` lines of the archives that the machine's apt uses for Debian."""
    lines = []
    for path in [Path("/etc/apt/sources.list"), *sorted(Path("/etc/apt/sources.list.d").glob("*.list"))]:
        if path.is_file():
            lines += [re.sub(r"^deb\s", "deb-src ", line) for line in path.read_text().splitlines() if line.startswith("deb ")]
    for path in sorted(Path("/etc/apt/sources.list.d").glob("*.sources")):
        for paragraph in re.split(r"\n\s*\n", path.read_text()):
            fields = dict(re.findall(r"^(\w[\w-]*):[ \t]*(.+)$", paragraph, re.MULTILINE))
            signed = f"[signed-by={fields['Signed-By']}] " if "Signed-By" in fields else ""
            for uri in fields.get("URIs", "").split():
                lines += [f"deb-src {signed}{uri} {suite} {fields['Components']}" for suite in fields.get("Suites", "").split() if "Components" in fields]
    return lines


def source(package: str, variable: str, patched: bool = False) -> Path | None:
    """The unpacked source of a package: the folder that a variable names, what was fetched before, or what apt fetches now.

    Without `patched` it is the authors': Debian's patches leave out tests that need what Debian does not have.
    """
    if given := os.environ.get(variable):
        return Path(given).resolve()
    folder = FOLDER / "sources" / package
    folder.mkdir(parents=True, exist_ok=True)
    with only_one():
        return fetched(package, variable, patched, folder)


@contextlib.contextmanager
def only_one() -> Iterator[None]:
    """Suites that run side by side share apt's lists: one of them fetches at a time."""
    with (FOLDER / "apt.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def fetched(package: str, variable: str, patched: bool, folder: Path) -> Path | None:
    if unpacked := [path for path in folder.glob("*/") if path.is_dir()]:
        return unpacked[0]
    state = FOLDER / "apt"
    for name in ("lists/partial", "cache/archives/partial"):
        (state / name).mkdir(parents=True, exist_ok=True)
    (state / "sources.list").write_text("\n".join(archives()) + "\n")
    (state / "apt.conf").write_text(
        f'Dir::Etc::sourcelist "{state}/sources.list";\nDir::Etc::sourceparts "-";\nDir::State::lists "{state}/lists";\nDir::Cache "{state}/cache";\n'
        'APT::Sandbox::User "root";\n'
    )
    environment = os.environ | {"APT_CONFIG": str(state / "apt.conf")}

    def run(*command: str) -> str:
        return subprocess.run(command, cwd=folder, env=environment, check=True, capture_output=True, text=True).stdout

    print(f"fetching the source of {package}", file=sys.stderr)
    try:
        run("apt-get", "--quiet=2", "update")
        download(run, package, folder)
        run("sh", "-c", f"dpkg-source --no-check {'' if patched else '--skip-patches'} --extract *.dsc")
    except subprocess.CalledProcessError as error:
        reason = (error.stderr or error.stdout).strip().splitlines()
        print(f"the source of {package} cannot be had by apt here ({reason[0] if reason else 'no reason'}): {variable}=FOLDER names it")
        return None
    return next(path for path in folder.glob("*/") if path.is_dir())


def download(run: Callable[..., str], package: str, folder: Path) -> None:
    """Downloads the newest version that the archive has: it may list one that it no longer has."""
    versions = set(re.findall(r"^Version: (.*)$", run("apt-cache", "showsrc", package), re.MULTILINE))
    newest_first = sorted(versions, key=lambda text: [int(part) for part in re.findall(r"\d+", text)], reverse=True)
    for number, version in enumerate(newest_first, 1):
        try:
            run("apt-get", "--quiet=2", "--download-only", "source", f"{package}={version}")
            return
        except subprocess.CalledProcessError:
            for part in folder.iterdir():
                part.unlink()
            if number == len(newest_first):
                raise


def installed(package: str) -> str:
    """The version of an installed package."""
    return subprocess.run(["dpkg-query", "-W", "-f", "${Version}", package], capture_output=True, text=True, check=False).stdout or "not installed"
