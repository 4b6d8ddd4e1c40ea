"""What the entries of a kubeconfig mean: a cluster is a server to trust, a user is credentials.

kubectl's rules: a token file is fresher than a token; an exec plugin is asked only where nothing else proves
who we are; what contradicts itself is refused. The legacy auth providers are refused too, with what replaced them.
"""

from collections.abc import Mapping
from urllib.parse import quote

from yarl import URL

from trimtab.kube.auth.credential_sources import Kept, Material, Written
from trimtab.kube.auth.credentials import AtHand, Credentials
from trimtab.kube.auth.exec_credential import cluster_info
from trimtab.kube.auth.exec_plugin import ExecPlugin
from trimtab.kube.auth.kubeconfig import Entry
from trimtab.kube.auth.kubeconfig_file import Cluster, User
from trimtab.kube.auth.tls import Trust
from trimtab.kube.errors import ConfigError

_HEADER_CHARACTERS = "!#$&'*+^`|"  # and those that quote() never touches

_INSTEAD_OF_PROVIDER = {
    "gcp": "the gke-gcloud-auth-plugin (`gcloud container clusters get-credentials` writes it)",
    "azure": "kubelogin (`kubelogin convert-kubeconfig` writes it)",
    "oidc": "kubelogin, the oidc-login plugin of kubectl",
}


def server_of(cluster: Entry[Cluster]) -> URL:
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


def _authority(cluster: Entry[Cluster]) -> Material | None:
    value = cluster.value
    return cluster.material(
        "certificate-authority", data=value.certificate_authority_data, path=value.certificate_authority
    )


def trust_of(cluster: Entry[Cluster]) -> Trust:
    authority, insecure = _authority(cluster), cluster.value.insecure_skip_tls_verify
    if authority and insecure:
        raise ConfigError(
            f"{cluster.where()}: has both insecure-skip-tls-verify and a certificate-authority; remove one"
        )
    return Trust(authority, insecure=insecure)


def credentials_of(user: Entry[User], cluster: Entry[Cluster], *, environ: Mapping[str, str]) -> Credentials:
    value = user.value
    if value.auth_provider:
        instead = _INSTEAD_OF_PROVIDER.get(value.auth_provider.name, "the exec plugin of your provider")
        raise ConfigError(
            f"{user.where('auth-provider')}: {value.auth_provider.name!r} is a legacy provider that Kubernetes "
            f"removed or froze; use {instead} under `exec` instead"
        )
    token, certificate = _token(user), _certificate(user)
    name_and_password = _name_and_password(user)
    if token and name_and_password:
        raise ConfigError(f"{user.where()}: has both a token and a username or password; remove one")
    if value.exec and not (token or name_and_password or certificate):
        return ExecPlugin(
            value.exec,
            user=user,
            cluster=cluster_info(cluster.value, authority=_authority(cluster)),
            environ=environ,
        )
    return AtHand(token=token, password=name_and_password, certificate=certificate)


def _name_and_password(user: Entry[User]) -> tuple[str, Material] | None:
    value = user.value
    if not (value.username or value.password):
        return None
    return value.username, Written(user.where("password"), value.password.reveal().encode())


def _token(user: Entry[User]) -> Material | None:
    """Of a token and a token file, the file is the fresher one."""
    if user.value.token_file:
        return Kept(user.path(user.value.token_file), where=user.where("tokenFile"))
    return Written(user.where("token"), user.value.token.reveal().encode()) if user.value.token else None


def _certificate(user: Entry[User]) -> tuple[Material, Material] | None:
    value = user.value
    shown = user.material(
        "client-certificate", data=value.client_certificate_data, path=value.client_certificate
    )
    key = user.material("client-key", data=value.client_key_data, path=value.client_key)
    if shown and not key:
        raise ConfigError(f"{user.where()}: has a client-certificate but no client-key or client-key-data")
    return (shown, key) if shown and key else None


def impersonation_of(user: Entry[User]) -> tuple[tuple[str, str], ...]:
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
