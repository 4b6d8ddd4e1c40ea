"""Credentials that we hold ourselves: given as they are now, kept while they are being replaced, never shown."""

from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from structlog.testing import capture_logs

from harness.builders.certificates import Authority, Pair
from trimtab.kube.auth.credential_sources import FileCredentialSource, InlineCredentialSource
from trimtab.kube.auth.credentials import (
    ClientCredential,
    LocalCredentialProvider,
    RedactedText,
    format_bearer_authorization,
)
from trimtab.kube.auth.tls import KeyPair
from trimtab.kube.errors import ConfigError


def written(token: str) -> InlineCredentialSource:
    return InlineCredentialSource("token", token.encode())


async def authorization(credentials: LocalCredentialProvider) -> str | None:
    proof = await credentials.get_credential()
    return proof.authorization.reveal() if proof.authorization else None


@pytest.fixture
def token_file(tmp_path: Path) -> Path:
    path = tmp_path / "token"
    path.write_text("first\n")
    return path


@pytest.fixture
def from_file(token_file: Path) -> LocalCredentialProvider:
    return LocalCredentialProvider(token=FileCredentialSource(token_file, where="tokenFile"))


def replace(path: Path, content: str) -> None:
    """Put a new file in the place of an old one, as a rotating tool does."""
    fresh = path.with_suffix(".new")
    fresh.write_text(content)
    fresh.rename(path)


async def test_credentials_without_any_source_are_anonymous() -> None:
    assert await LocalCredentialProvider().get_credential() == ClientCredential(None, None)


async def test_credentials_strip_the_line_break_of_a_token() -> None:
    assert await authorization(LocalCredentialProvider(token=written("abc\n"))) == "Bearer abc"


async def test_credentials_send_name_and_password_as_basic() -> None:
    held = LocalCredentialProvider(password=("alice", written("pässword")))
    assert await authorization(held) == "Basic YWxpY2U6cMOkc3N3b3Jk"


async def test_credentials_reread_a_changed_password_file(tmp_path: Path) -> None:
    file = tmp_path / "password"
    file.write_text("old\n")
    held = LocalCredentialProvider(password=("alice", FileCredentialSource(file, where="password_file")))
    assert await authorization(held) == "Basic YWxpY2U6b2xk"
    file.with_suffix(".new").write_text("new\n")
    file.with_suffix(".new").replace(file)
    assert await authorization(held) == "Basic YWxpY2U6bmV3"


@pytest.mark.parametrize("token", ["hunter2\nX-Evil: 1", "hunter2 hunter3", "  ", "hünter2", "hunter2\x00"])
def test_credentials_reject_and_hide_a_token_that_is_no_header(token: str) -> None:
    with pytest.raises(ConfigError, match="token: must be one line of printable characters") as caught:
        LocalCredentialProvider(token=written(token))
    assert "hunter2" not in str(caught.value)


# Rotation


async def test_credentials_return_the_same_object_until_they_change(
    from_file: LocalCredentialProvider,
) -> None:
    assert await from_file.get_credential() is await from_file.get_credential()


async def test_credentials_use_a_rotated_token_at_once(
    from_file: LocalCredentialProvider, token_file: Path
) -> None:
    before = await from_file.get_credential()
    replace(token_file, "second")
    assert await authorization(from_file) == "Bearer second"
    assert await from_file.get_credential() is not before


async def test_credentials_use_a_token_rotated_by_the_kubelet_at_once(tmp_path: Path) -> None:
    """The kubelet swaps a link to a directory: the token's own path never changes."""
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "token").write_text(name)
    (tmp_path / "..data").symlink_to("one")
    (tmp_path / "token").symlink_to("..data/token")
    credentials = LocalCredentialProvider(token=FileCredentialSource(tmp_path / "token", where="token"))
    assert await authorization(credentials) == "Bearer one"
    (tmp_path / "..data_tmp").symlink_to("two")
    (tmp_path / "..data_tmp").rename(tmp_path / "..data")
    assert await authorization(credentials) == "Bearer two"


@pytest.mark.parametrize(
    "vanish", [Path.unlink, lambda path: path.write_text(""), lambda path: path.write_text(" \n")]
)
async def test_credentials_keep_the_token_while_its_file_is_missing_or_empty(
    vanish: Callable[[Path], None], from_file: LocalCredentialProvider, token_file: Path
) -> None:
    before = await from_file.get_credential()
    with capture_logs() as logs:
        vanish(token_file)
        assert await from_file.get_credential() is before
        assert await from_file.get_credential() is before
    assert [entry["log_level"] for entry in logs] == ["warning"]
    replace(token_file, "second")
    assert await authorization(from_file) == "Bearer second"


def test_credentials_reject_a_token_file_that_never_existed(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"tokenFile \(.*/missing\): cannot be read: No such file"):
        LocalCredentialProvider(token=FileCredentialSource(tmp_path / "missing", where="tokenFile"))


# After a 401


async def test_credentials_that_cannot_change_are_not_retried() -> None:
    credentials = LocalCredentialProvider(token=written("abc"))
    assert not await credentials.renew(await credentials.get_credential())


async def test_credentials_retry_a_refused_token_once_its_file_changed(
    from_file: LocalCredentialProvider, token_file: Path
) -> None:
    refused = await from_file.get_credential()
    assert not await from_file.renew(refused)
    replace(token_file, "second")
    assert await from_file.renew(refused)
    assert await authorization(from_file) == "Bearer second"


async def test_credentials_reread_a_file_after_a_rejection(
    from_file: LocalCredentialProvider, token_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(FileCredentialSource, "_fingerprint", lambda _: "unchanged")
    refused = await from_file.get_credential()
    replace(token_file, "second")
    assert await from_file.get_credential() is refused
    assert await from_file.renew(refused)


# Secrecy


@settings(max_examples=100)
@given(st.text(st.characters(codec="ascii", categories=["L", "N"]), min_size=20))
def test_credentials_hide_the_token_when_printed(token: str) -> None:
    material = written(token)
    shown = f"{material!r} {format_bearer_authorization(material.read(), where='token')!s} {LocalCredentialProvider(token=material)!r} {ClientCredential(RedactedText(token))}"
    assert token not in shown


def certificate(pair: Pair) -> tuple[FileCredentialSource, FileCredentialSource]:
    return FileCredentialSource(pair.cert, where="client-certificate"), FileCredentialSource(
        pair.key, where="client-key"
    )


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"), "test-ca")


async def test_credentials_send_token_and_certificate(authority: Authority) -> None:
    pair = authority.issue("alice")
    proof = await LocalCredentialProvider(
        token=written("abc"), certificate=certificate(pair)
    ).get_credential()
    assert proof.authorization
    assert proof.certificate
    assert proof.certificate.certificate == pair.cert.read_bytes()


async def test_credentials_wait_for_a_matching_certificate_and_key(
    authority: Authority, tmp_path: Path
) -> None:
    old, new = authority.issue("old"), authority.issue("new")
    live = Pair(cert=tmp_path / "tls.crt", key=tmp_path / "tls.key")
    live.cert.write_bytes(old.cert.read_bytes())
    live.key.write_bytes(old.key.read_bytes())
    credentials = LocalCredentialProvider(certificate=certificate(live))
    before = await credentials.get_credential()
    replace(live.cert, new.cert.read_text())
    assert await credentials.get_credential() is before
    replace(live.key, new.key.read_text())
    proof = await credentials.get_credential()
    assert proof.certificate
    assert proof.certificate.certificate == new.cert.read_bytes()


# Expiry


def test_credentials_reject_an_expired_certificate_with_advice(authority: Authority) -> None:
    pair = authority.issue("alice")
    read = KeyPair.read(pair.cert.read_bytes(), pair.key.read_bytes(), where=("c", "k"))
    with pytest.raises(
        ConfigError, match=r"client-certificate \(.*alice.crt\): the certificate expired on .* UTC; renew it"
    ):
        LocalCredentialProvider(certificate=certificate(pair), now=lambda: read.expires_at)


async def test_credentials_reject_a_certificate_once_it_expires(authority: Authority) -> None:
    pair = authority.issue("alice")
    read = KeyPair.read(pair.cert.read_bytes(), pair.key.read_bytes(), where=("c", "k"))
    now = read.expires_at - timedelta(seconds=1)
    credentials = LocalCredentialProvider(certificate=certificate(pair), now=lambda: now)
    assert (await credentials.get_credential()).certificate
    now = read.expires_at
    with pytest.raises(ConfigError, match="expired"):
        await credentials.get_credential()


async def test_credentials_accept_an_expired_certificate_beside_a_token(authority: Authority) -> None:
    pair = authority.issue("alice")
    read = KeyPair.read(pair.cert.read_bytes(), pair.key.read_bytes(), where=("c", "k"))
    credentials = LocalCredentialProvider(
        token=written("abc"), certificate=certificate(pair), now=lambda: read.expires_at
    )
    assert (await credentials.get_credential()).authorization
