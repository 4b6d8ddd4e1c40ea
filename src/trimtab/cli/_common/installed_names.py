"""The names that the configuration of an installed operator gives to its objects."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from yaml import YAMLError

from trimtab.errors import TrimtabError
from trimtab.kube.errors import Forbidden, NotFound
from trimtab.kube.rest.client import Client
from trimtab.kube.rest.resources import CONFIG_MAPS
from trimtab.operator.config.model import LeaderElectionSettings, WebhookSettings
from trimtab.yaml_documents import load_yaml

CONFIG_VOLUME, CONFIG_KEY = "config", "config.yaml"
"""The volume of the operator's pods with its configuration, and the file in it."""

Object = Mapping[str, Any]


class InstalledNames(NamedTuple):
    """The names of the objects that the operator creates for itself."""

    lease: str = LeaderElectionSettings().name
    webhook_secret: str = WebhookSettings().secret


async def read_installed_names(client: Client, pods: Iterable[Object], *, namespace: str) -> InstalledNames:
    """Read the names from the configuration that the operator's pods mount; the defaults if it cannot be read."""
    volumes = [volume for pod in pods for volume in pod.get("spec", {}).get("volumes") or ()]
    mounted = {
        each["configMap"]["name"] for each in volumes if each["name"] == CONFIG_VOLUME and "configMap" in each
    }
    for name in sorted(mounted):
        try:
            found: Object = await client.get(CONFIG_MAPS, name, namespace=namespace)
            settings = load_yaml((found.get("data") or {}).get(CONFIG_KEY, ""))
        except (NotFound, Forbidden, TrimtabError, YAMLError):
            continue
        return _select_names(settings)
    return InstalledNames()


def _select_names(settings: object) -> InstalledNames:
    def read(section: str, key: str, default: str) -> str:
        part = settings.get(section) if isinstance(settings, Mapping) else None
        value = part.get(key) if isinstance(part, Mapping) else None
        return value if isinstance(value, str) and value else default

    defaults = InstalledNames()
    return InstalledNames(
        lease=read("leaderElection", "name", defaults.lease),
        webhook_secret=read("webhook", "secret", defaults.webhook_secret),
    )
