"""Interpret the entries of a kubeconfig: a cluster becomes a server to trust, a user becomes credentials.

By kubectl's rules, a token file takes precedence over a token, an exec plugin runs only if there are no other
credentials, and contradictory fields are rejected. The legacy auth providers are rejected too; the error names their
replacement.
"""

from collections.abc import Mapping
from urllib.parse import quote

from yarl import URL

from trimtab.kube.auth.credential_sources import (
    CredentialSource,
    FileCredentialSource,
    InlineCredentialSource,
)
from trimtab.kube.auth.credentials import CredentialProvider, LocalCredentialProvider
from trimtab.kube.auth.exec_credential import build_cluster_info
from trimtab.kube.auth.exec_plugin import ExecPlugin
from trimtab.kube.auth.kubeconfig import KubeconfigEntry
from trimtab.kube.auth.kubeconfig_file import KubeconfigCluster, KubeconfigUser
from trimtab.kube.auth.tls import Trust
from trimtab.kube.errors import ConfigError

_HEADER_CHARACTERS = "!#$&'*+^`|"  # in addition to those that quote() never escapes

_PROVIDER_REPLACEMENTS = {
    "gcp": "the gke-gcloud-auth-plugin (`gcloud container clusters get-credentials` writes it)",
    "azure": "kubelogin (`kubelogin convert-kubeconfig` writes it)",
    "oidc": "kubelogin, the oidc-login plugin of kubectl",
}


def parse_server_url(cluster: KubeconfigEntry[KubeconfigCluster]) -> URL:
    try:
        url = URL(cluster.value.server).with_query(None).with_fragment(None)
    except ValueError:
        raise ConfigError(f"{cluster.where('server')}: not a URL; write https://HOST:PORT") from None
    if url.scheme not in {"http", "https"} or not url.host:
        raise ConfigError(f"{cluster.where('server')}: must look like https://HOST:PORT")
    if url.user or url.password:
        raise ConfigError(
            f"{cluster.where('server')}: must not hold a user or password; that belongs under users"
        )
    return url


def _read_authority(cluster: KubeconfigEntry[KubeconfigCluster]) -> CredentialSource | None:
    value = cluster.value
    return cluster.credential_source(
        "certificate-authority", data=value.certificate_authority_data, path=value.certificate_authority
    )


def build_trust(cluster: KubeconfigEntry[KubeconfigCluster]) -> Trust:
    authority, insecure = _read_authority(cluster), cluster.value.insecure_skip_tls_verify
    if authority and insecure:
        raise ConfigError(
            f"{cluster.where()}: has both insecure-skip-tls-verify and a certificate-authority; remove one"
        )
    return Trust(authority, insecure=insecure)


def build_credentials(
    user: KubeconfigEntry[KubeconfigUser],
    cluster: KubeconfigEntry[KubeconfigCluster],
    *,
    environ: Mapping[str, str],
) -> CredentialProvider:
    value = user.value
    if value.auth_provider:
        instead = _PROVIDER_REPLACEMENTS.get(value.auth_provider.name, "the exec plugin of your provider")
        raise ConfigError(
            f"{user.where('auth-provider')}: {value.auth_provider.name!r} is a legacy provider that Kubernetes "
            f"removed or froze; use {instead} under `exec` instead"
        )
    token, certificate = _read_token(user), _read_certificate(user)
    name_and_password = _read_password(user)
    if token and name_and_password:
        raise ConfigError(f"{user.where()}: has both a token and a username or password; remove one")
    if value.exec and not (token or name_and_password or certificate):
        return ExecPlugin(
            value.exec,
            user=user,
            cluster=build_cluster_info(cluster.value, authority=_read_authority(cluster)),
            environ=environ,
        )
    return LocalCredentialProvider(token=token, password=name_and_password, certificate=certificate)


def _read_password(user: KubeconfigEntry[KubeconfigUser]) -> tuple[str, CredentialSource] | None:
    value = user.value
    if not (value.username or value.password):
        return None
    return value.username, InlineCredentialSource(user.where("password"), value.password.reveal().encode())


def _read_token(user: KubeconfigEntry[KubeconfigUser]) -> CredentialSource | None:
    """Return the token file if there is one, because it is fresher than an inline token."""
    if user.value.token_file:
        return FileCredentialSource(user.resolve_path(user.value.token_file), where=user.where("tokenFile"))
    return (
        InlineCredentialSource(user.where("token"), user.value.token.reveal().encode())
        if user.value.token
        else None
    )


def _read_certificate(
    user: KubeconfigEntry[KubeconfigUser],
) -> tuple[CredentialSource, CredentialSource] | None:
    value = user.value
    shown = user.credential_source(
        "client-certificate", data=value.client_certificate_data, path=value.client_certificate
    )
    key = user.credential_source("client-key", data=value.client_key_data, path=value.client_key)
    if shown and not key:
        raise ConfigError(f"{user.where()}: has a client-certificate but no client-key or client-key-data")
    return (shown, key) if shown and key else None


def build_impersonation_headers(user: KubeconfigEntry[KubeconfigUser]) -> tuple[tuple[str, str], ...]:
    value = user.value
    if not value.impersonate:
        if value.as_uid or value.as_groups or value.as_user_extra:
            raise ConfigError(
                f"{user.where()}: as-uid, as-groups and as-user-extra need `as`, the user to act as"
            )
        return ()
    return (
        ("Impersonate-User", value.impersonate),
        *([("Impersonate-Uid", value.as_uid)] if value.as_uid else ()),
        *(("Impersonate-Group", group) for group in value.as_groups),
        *(
            (f"Impersonate-Extra-{quote(key, safe=_HEADER_CHARACTERS)}", item)
            for key, items in value.as_user_extra.items()
            for item in items
        ),
    )
