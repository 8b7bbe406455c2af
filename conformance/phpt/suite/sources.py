"""Finds php-src's sources: the folder in PHP_SRC, or Debian's source package, fetched by apt with a sources list of its own."""

import os
import re
import shutil
import subprocess
import tarfile
from pathlib import Path

MIRRORS = [("http://deb.debian.org/debian", ""), ("http://deb.debian.org/debian-security", "-security"), ("http://deb.debian.org/debian", "-updates")]
KEYS = "/usr/share/keyrings/debian-archive-keyring.gpg"


def found(kept: Path, minor: str) -> tuple[Path | None, str]:
    """The folder, or why there is none."""
    if "PHP_SRC" in os.environ:
        folder = Path(os.environ["PHP_SRC"]).resolve()
        return (folder, "") if (folder / "run-tests.php").exists() else (None, f"{folder} has no run-tests.php: PHP_SRC is the folder of php-src's sources")
    folder = kept / f"php-src-{minor}"
    if (folder / "run-tests.php").exists():
        return folder, ""
    if shutil.which("apt-get") is None:
        return None, "there is no apt-get to fetch PHP's sources with; PHP_SRC may name them"
    work = kept / "apt"
    shutil.rmtree(work, ignore_errors=True)
    try:
        return fetched(work, folder, f"php{minor}"), ""
    except (subprocess.SubprocessError, OSError, LookupError) as error:
        said = getattr(error, "stderr", "") or str(error)
        return None, f"apt has no sources of php{minor} ({' '.join(said.split())[-160:]}); PHP_SRC may name them"
    finally:
        shutil.rmtree(work, ignore_errors=True)


def fetched(work: Path, folder: Path, package: str) -> Path:
    (work / "lists/partial").mkdir(parents=True)
    (work / "cache/archives/partial").mkdir(parents=True)
    suite = next(line.split("=")[1].strip() for line in Path("/etc/os-release").read_text().splitlines() if line.startswith("VERSION_CODENAME="))
    (work / "sources.list").write_text("".join(f"deb-src [signed-by={KEYS}] {mirror} {suite}{part} main\n" for mirror, part in MIRRORS))
    apt = [f"-oDir::Etc::sourcelist={work}/sources.list", "-oDir::Etc::sourceparts=-", f"-oDir::State::lists={work}/lists", f"-oDir::Cache={work}/cache",
           "-oAPT::Sandbox::User="]

    def run(command: str, *arguments: str) -> str:
        return subprocess.run([command, *apt, *arguments], cwd=work, check=True, capture_output=True, text=True, timeout=300).stdout

    run("apt-get", "update")
    versions = re.findall(r"^Version: (.*)$", run("apt-cache", "showsrc", package), re.MULTILINE)
    failure: Exception = LookupError(f"no source package {package}")
    # The newest first. A mirror may list one that it no longer has.
    for version in sorted(set(versions), key=lambda text: [int(part) for part in re.findall(r"\d+", text)], reverse=True):
        try:
            run("apt-get", "source", "--download-only", f"{package}={version}")
        except subprocess.SubprocessError as error:
            failure = error
            continue
        with tarfile.open(next(work.glob("*.orig.tar.*z"))) as archive:
            archive.extractall(work / "unpacked", filter="data")
        shutil.rmtree(folder, ignore_errors=True)
        next((work / "unpacked").iterdir()).rename(folder)
        return folder
    raise failure
