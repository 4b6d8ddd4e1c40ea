"""Test TLS, password and proxy authentication against a real Prometheus."""

from pathlib import Path

import pytest

from harness import UnavailableError
from harness.builders.certificates import LOOPBACK, Authority
from harness.peers.prometheus import Recorded
from trimtab.usage.errors import SourceRefused
from trimtab.usage.prometheus import Prometheus, PrometheusSettings
from trimtab.usage.source import UsageQuery
from usage.recording import T0, MetricRecording, container_labels

QUERY = UsageQuery(start=T0, end=T0 + 600, step=60)
HASH_OF_TEST = "$2b$12$hNf2lSsxfm0.i4a.1kVpSOVyBCfIB51VRjgBUyv6kdnyTlgWj81Ay"


async def test_prometheus_authenticates_with_mutual_tls_and_password(tmp_path: Path) -> None:
    authority, other = Authority(tmp_path / "ca", "ca"), Authority(tmp_path / "other", "other")
    own, ours = authority.issue("server", hosts=LOOPBACK), authority.issue("trimtab")
    web = {
        "tls_server_config": {
            "cert_file": str(own.cert),
            "key_file": str(own.key),
            "client_auth_type": "RequireAndVerifyClientCert",
            "client_ca_file": str(authority.cert),
        },
        "basic_auth_users": {"admin": HASH_OF_TEST},
    }
    recording = MetricRecording()
    recording.container(container_labels("web"), cores=0.5, memory=1e8)
    password, wrong = tmp_path / "password", tmp_path / "wrong"
    password.write_text("test\n")
    wrong.write_text("guess\n")
    settings = PrometheusSettings(
        username="admin",
        password_file=password,
        ca_file=authority.cert,
        cert_file=ours.cert,
        key_file=ours.key,
        retries=0,
    )
    try:
        recorded = Recorded(tmp_path, recording.text, web=web)
    except UnavailableError as why:
        pytest.skip(str(why))
    with recorded as server:
        here = settings.model_copy(update={"url": server.url})
        async with Prometheus(here) as prometheus:
            assert (await prometheus.read(QUERY)).sample_count > 5
        blind = {"ca_file": None, "insecure": True}
        async with Prometheus(here.model_copy(update=blind)) as prometheus:
            assert (await prometheus.read(QUERY)).sample_count > 5
        for change, line in (
            ({"password_file": wrong}, "401 .*check token_file, username"),
            ({"ca_file": other.cert}, "certificate is not trusted"),
            ({"ca_file": tmp_path / "none"}, "ca_file .* cannot be read"),
        ):
            async with Prometheus(here.model_copy(update=change)) as prometheus:
                with pytest.raises(SourceRefused, match=line):
                    await prometheus.read(QUERY)
