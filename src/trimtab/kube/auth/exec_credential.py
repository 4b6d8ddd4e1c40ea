"""The exec plugin protocol: client.authentication.k8s.io, v1 and v1beta1.

A plugin gets its input in the environment variable KUBERNETES_EXEC_INFO, and prints an ExecCredential with a token, a
client certificate, or both. `exec_plugin` runs it.
"""

import base64
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated

import msgspec

from trimtab.kube.auth.credential_sources import CredentialSource
from trimtab.kube.auth.credentials import (
    ClientCredential,
    RedactedText,
    decode_redacted,
    format_bearer_authorization,
)
from trimtab.kube.auth.kubeconfig_file import ExecConfig, KubeconfigCluster
from trimtab.kube.auth.tls import KeyPair
from trimtab.kube.errors import DECODE_ERRORS, ConfigError

GROUP = "client.authentication.k8s.io"
VERSIONS = (f"{GROUP}/v1", f"{GROUP}/v1beta1")
INTERACTIVE_MODES = ("Never", "IfAvailable", "Always")


@dataclass(frozen=True)
class IssuedCredential:
    """The credential that a plugin returned, and its expiry."""

    credential: ClientCredential
    expires_at: datetime | None


class _Status(msgspec.Struct, frozen=True, rename="camel"):
    expiration_timestamp: Annotated[datetime, msgspec.Meta(tz=True)] | None = None
    token: RedactedText | None = None
    client_certificate_data: str | None = None
    client_key_data: RedactedText | None = None


class _ExecCredential(msgspec.Struct, frozen=True, rename="camel"):
    api_version: str = ""
    kind: str = ""
    status: _Status | None = None


_DECODER = msgspec.json.Decoder(_ExecCredential, dec_hook=decode_redacted)


def validate_plugin(plugin: ExecConfig, *, where: str) -> ExecConfig:
    """Return the plugin's settings with defaults filled in; raise ConfigError if they are invalid."""
    if not plugin.command:
        raise ConfigError(f"{where}: command is missing")
    if plugin.api_version not in VERSIONS:
        raise ConfigError(
            f"{where}: apiVersion {plugin.api_version!r} is not supported; "
            f"use {' or '.join(VERSIONS)}, as current versions of the plugin do"
        )
    if not plugin.interactive_mode and plugin.api_version != VERSIONS[0]:
        return msgspec.structs.replace(plugin, interactive_mode="IfAvailable")
    if plugin.interactive_mode not in INTERACTIVE_MODES:
        raise ConfigError(f"{where}: interactiveMode must be one of {', '.join(INTERACTIVE_MODES)}")
    return plugin


def build_environment(
    plugin: ExecConfig, *, cluster: Mapping[str, object], interactive: bool
) -> dict[str, str]:
    """Build the variables that the plugin gets in addition to ours."""
    spec: dict[str, object] = {"interactive": interactive}
    if plugin.provide_cluster_info:
        spec["cluster"] = cluster
    info = {"apiVersion": plugin.api_version, "kind": "ExecCredential", "spec": spec}
    given = {variable.name: variable.value.reveal() for variable in plugin.env}
    return {**given, "KUBERNETES_EXEC_INFO": msgspec.json.encode(info).decode()}


def build_cluster_info(
    cluster: KubeconfigCluster, *, authority: CredentialSource | None
) -> dict[str, object]:
    """Build the cluster information for a plugin that requests it."""
    info: dict[str, object] = {
        "tls-server-name": cluster.tls_server_name,
        "insecure-skip-tls-verify": cluster.insecure_skip_tls_verify,
        "certificate-authority-data": base64.b64encode(authority.read()).decode() if authority else "",
        "proxy-url": cluster.proxy_url.reveal(),
        "disable-compression": cluster.disable_compression,
        "config": next((e.extension for e in cluster.extensions if e.name == f"{GROUP}/exec"), None),
    }
    return {"server": cluster.server} | {name: value for name, value in info.items() if value}


def parse_exec_credential(output: bytes, *, version: str, where: str) -> IssuedCredential:
    """Parse the plugin's output; the error for invalid output quotes none of it."""
    try:
        credential = _DECODER.decode(output)
    except DECODE_ERRORS as error:
        raise ConfigError(f"{where}: its output is not an ExecCredential: {error}") from None
    if credential.kind != "ExecCredential" or credential.api_version != version:
        raise ConfigError(
            f"{where}: its output is not an ExecCredential of {version}; set apiVersion to the version that the plugin supports"
        )
    if credential.status is None:
        raise ConfigError(f"{where}: returned no status")
    return _read_status(credential.status, where=where)


def _read_status(status: _Status, *, where: str) -> IssuedCredential:
    certificate, key = status.client_certificate_data, status.client_key_data
    if bool(certificate) != bool(key):
        raise ConfigError(f"{where}: returned a certificate or a key, but not both")
    pair = None
    if certificate and key:
        places = (f"{where}: clientCertificateData", f"{where}: clientKeyData")
        pair = KeyPair.read(certificate.encode(), key.reveal().encode(), where=places)
    token = (
        format_bearer_authorization(status.token.reveal().encode(), where=f"{where}: token")
        if status.token
        else None
    )
    if not token and not pair:
        raise ConfigError(f"{where}: returned neither a token nor a certificate")
    expires_at = status.expiration_timestamp
    if expires_at and expires_at.year == 1:  # Go's zero time
        expires_at = None
    ends = [end for end in (expires_at, pair and pair.expires_at) if end]
    return IssuedCredential(ClientCredential(token, pair), min(ends, default=None))
