"""Decode one kubeconfig file into the fields that are used, or report why it cannot be read.

Unknown fields are ignored, as kubectl does. Secret values are wrapped at once, and no message quotes a value.
`kubeconfig` finds, merges and selects files.
"""

from pathlib import Path
from typing import Annotated, Any

import msgspec
import yaml

from trimtab.kube.auth.credentials import RedactedText, decode_redacted
from trimtab.kube.errors import ConfigError
from trimtab.kube.nulls import drop_nulls
from trimtab.yaml_documents import YamlBoundsError, load_yaml


class Extension(msgspec.Struct, frozen=True):
    name: str = ""
    extension: Any = None


class KubeconfigCluster(msgspec.Struct, frozen=True, rename="kebab"):
    """The address of an API server and the trust in it."""

    server: str = ""
    tls_server_name: str = ""
    insecure_skip_tls_verify: bool = False
    certificate_authority: str = ""
    certificate_authority_data: str = ""
    proxy_url: RedactedText = RedactedText("")  # may contain a password
    disable_compression: bool = False
    extensions: tuple[Extension, ...] = ()


class ExecEnvVar(msgspec.Struct, frozen=True):
    name: str
    value: RedactedText = RedactedText("")


class ExecConfig(msgspec.Struct, frozen=True, rename="camel"):
    """The settings of a program that issues credentials."""

    command: str = ""
    args: tuple[RedactedText, ...] = ()
    env: tuple[ExecEnvVar, ...] = ()
    api_version: str = ""
    install_hint: str = ""
    provide_cluster_info: bool = False
    interactive_mode: str = ""


class AuthProvider(msgspec.Struct, frozen=True):
    name: str = ""


class KubeconfigUser(msgspec.Struct, frozen=True, rename="kebab"):
    """The credentials of a user."""

    client_certificate: str = ""
    client_certificate_data: str = ""
    client_key: str = ""
    client_key_data: RedactedText = RedactedText("")
    token: RedactedText = RedactedText("")
    token_file: str = msgspec.field(default="", name="tokenFile")
    username: str = ""
    password: RedactedText = RedactedText("")
    impersonate: str = msgspec.field(default="", name="as")
    as_uid: str = ""
    as_groups: tuple[str, ...] = ()
    as_user_extra: dict[str, tuple[str, ...]] = {}
    exec: ExecConfig | None = None
    auth_provider: AuthProvider | None = None


_Name = Annotated[str, msgspec.Meta(max_length=253)]
"""Messages quote names; those of real clusters have about a hundred characters."""


class KubeconfigContext(msgspec.Struct, frozen=True):
    """A named combination of a cluster, a user and a namespace."""

    cluster: _Name = ""
    user: _Name = ""
    namespace: str = ""


class _NamedCluster(msgspec.Struct, frozen=True):
    name: _Name
    cluster: KubeconfigCluster = KubeconfigCluster()


class _NamedUser(msgspec.Struct, frozen=True):
    name: _Name
    user: KubeconfigUser = KubeconfigUser()


class _NamedContext(msgspec.Struct, frozen=True):
    name: _Name
    context: KubeconfigContext = KubeconfigContext()


class KubeconfigFile(msgspec.Struct, frozen=True, rename="kebab"):
    clusters: tuple[_NamedCluster, ...] = ()
    users: tuple[_NamedUser, ...] = ()
    contexts: tuple[_NamedContext, ...] = ()
    current_context: _Name = ""


def decode_kubeconfig(content: bytes, path: Path) -> KubeconfigFile:
    try:
        parsed = load_yaml(content)
        return msgspec.convert(drop_nulls(parsed) or {}, KubeconfigFile, dec_hook=decode_redacted)
    except yaml.MarkedYAMLError as error:
        line = f"line {error.problem_mark.line + 1}: " if error.problem_mark else ""
        # PyYAML quotes tags and aliases in its messages, and an unquoted password that starts with ! or * parses as
        # one.
        shown = isinstance(error, yaml.scanner.ScannerError | yaml.parser.ParserError | YamlBoundsError)
        problem = error.problem if shown else "quote values that begin with !, & or *"
        raise ConfigError(f"{path}: {line}not valid YAML: {problem}") from None
    except msgspec.ValidationError as error:
        problem, _, place = str(error).partition(" - at `$.")
        raise ConfigError(f"{path}: {place.rstrip('`') or 'the file'}: {problem}") from None
    except (yaml.YAMLError, ValueError):
        raise ConfigError(f"{path}: not valid YAML") from None
