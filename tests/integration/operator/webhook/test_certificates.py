"""Certificates of our own making: believed by a verifier that is not ours, renewed in time, old beside new."""

import subprocess
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from trimtab.operator.webhook.certificates import ServingCertificate, generate_certificate

NOW = datetime.now(UTC)
DAY = timedelta(days=1)
NAMES = ("trimtab-webhook.trimtab-system.svc", "127.0.0.1")


@pytest.fixture(scope="module")
def pair() -> ServingCertificate:
    return generate_certificate(NAMES, now=NOW, validity=90 * DAY)


def test_certificate_is_valid_for_its_names_only(pair: ServingCertificate, tmp_path: Path) -> None:
    (tmp_path / "ca").write_bytes(pair.authority)
    (tmp_path / "leaf").write_bytes(pair.certificate)

    def verify(*options: str) -> bool:
        command = [
            "openssl",
            "verify",
            "-x509_strict",
            "-purpose",
            "sslserver",
            "-CAfile",
            str(tmp_path / "ca"),
        ]
        return (
            subprocess.run(
                [*command, *options, str(tmp_path / "leaf")], capture_output=True, check=False
            ).returncode
            == 0
        )

    assert verify("-verify_hostname", NAMES[0])
    assert verify("-verify_ip", NAMES[1])
    assert not verify("-verify_hostname", "elsewhere.svc")
