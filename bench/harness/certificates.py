"""Certificates of a bench's own, made by openssl: for a server on 127.0.0.1 or of other names, by an authority that no other program trusts."""

import subprocess
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Certificate:
    """PEM files: the trusted authority, the server's certificate, and its key."""

    authority: Path
    signed: Path
    key: Path


def make(folder: Path, alternatives: str = "IP:127.0.0.1") -> Certificate:
    """Makes one in `folder`, which is there; for two days. `alternatives`: as openssl takes a subjectAltName."""
    made = Certificate(folder / "authority.pem", folder / "certificate.pem", folder / "key.pem")
    request, authority_key, names = folder / "request", folder / "authority.key", folder / "names"
    names.write_text(f"subjectAltName={alternatives}\n")
    ec = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
    for command in (
        ["req", "-x509", *ec, "-keyout", authority_key, "-out", made.authority, "-subj", "/CN=the bench's authority", "-days", "2"],
        ["req", *ec, "-keyout", made.key, "-out", request, "-subj", "/CN=127.0.0.1"],
        ["x509", "-req", "-in", request, "-CA", made.authority, "-CAkey", authority_key, "-CAcreateserial", "-out", made.signed, "-days", "2",
         "-extfile", names],
    ):
        subprocess.run(["openssl", *map(str, command)], check=True, capture_output=True)
    return made
