"""Issue certificates for tests, so that they speak the TLS of a real cluster, verified both ways."""

import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from harness import packages

LOOPBACK = ("IP:127.0.0.1", "DNS:localhost")

_CA = """basicConstraints = critical, CA:TRUE
keyUsage = critical, keyCertSign, cRLSign
subjectKeyIdentifier = hash
"""
_LEAF = """basicConstraints = critical, CA:FALSE
keyUsage = critical, digitalSignature
extendedKeyUsage = serverAuth, clientAuth
subjectKeyIdentifier = hash
authorityKeyIdentifier = keyid
"""


@dataclass(frozen=True)
class Pair:
    """A certificate and its key, as files."""

    cert: Path
    key: Path


class Authority:
    """A certificate authority with its files in one folder; `issue` signs for a name."""

    def __init__(self, folder: Path, name: str) -> None:
        packages.install("openssl")
        folder.mkdir(parents=True, exist_ok=True)
        self._folder = folder
        self._own = self._make(name, subject=f"CN = {name}", extensions=_CA)

    @property
    def cert(self) -> Path:
        return self._own.cert

    def issue(self, name: str, *, group: str | None = None, hosts: Sequence[str] = ()) -> Pair:
        """Sign a certificate: to Kubernetes its name is the user, and its organisation a group of theirs."""
        subject = f"CN = {name}\n" + (f"O = {group}\n" if group else "")
        names = f"subjectAltName = {', '.join(hosts)}\n" if hosts else ""
        signed_by = ("-CA", self._own.cert, "-CAkey", self._own.key)
        return self._make(name, subject=subject, extensions=_LEAF + names, arguments=signed_by)

    def _make(
        self, name: str, *, subject: str, extensions: str, arguments: Sequence[str | Path] = ()
    ) -> Pair:
        settings = self._folder / f"{name}.conf"
        sections = "[req]\nprompt = no\ndistinguished_name = subject\nx509_extensions = extensions\n"
        settings.write_text(f"{sections}[subject]\n{subject}\n[extensions]\n{extensions}")
        pair = Pair(cert=self._folder / f"{name}.crt", key=self._folder / f"{name}.key")
        command = [
            "openssl",
            "req",
            "-x509",
            "-newkey",
            "ec",
            "-pkeyopt",
            "ec_paramgen_curve:prime256v1",
            "-nodes",
        ]
        command += ["-days", "30", "-config", str(settings), "-keyout", str(pair.key), "-out", str(pair.cert)]
        made = subprocess.run([*command, *arguments], capture_output=True, text=True, check=False)
        if made.returncode:
            raise RuntimeError(f"openssl made no certificate for {name}: {made.stderr}")
        return pair
