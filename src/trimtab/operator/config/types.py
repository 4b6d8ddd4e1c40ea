"""The value types of the operator's settings, with their validation."""

import re
from collections.abc import Iterator, Mapping
from typing import Annotated, Any

from pydantic import AfterValidator, Field
from yarl import URL

from trimtab.api.errors import validation_problem
from trimtab.intents.kpi.endpoints import find_forbidden_address
from trimtab.store.errors import AddressError
from trimtab.usage.prometheus.template import find_query_problem

_SECRET = re.compile(r"(?i)(password|passwd|token|secret|api[-_]?key|credential|authorization)s?$")


def _check_promql(query: str) -> str:
    if (wrong := find_query_problem(query)) is not None:
        raise validation_problem(wrong)
    return query


def _check_store_url(url: str) -> str:
    # Imported here: SQLAlchemy takes 18 MiB, and a scan reads the configuration without a store.
    from trimtab.store.store import select_backend

    try:
        select_backend(url)
    except AddressError as error:
        raise validation_problem(str(error).partition(": ")[2] or str(error)) from None
    if "://" in url and (URL(url).password or "password" in URL(url).query):
        raise validation_problem(
            "contains a password; put it into a file and name the file: …?passfile=/run/secrets/pgpass"
        )
    return url


def _check_address(address: str) -> str:
    host, colon, port = address.rpartition(":")
    if not colon or not port.isdigit() or int(port) > 65535 or (":" in host and host[:1] != "["):
        raise validation_problem(
            f'"{address}" is not an address to listen on; write it like :8080, 127.0.0.1:8080 or [::1]:8080'
        )
    return address


def _check_kpi_endpoint(url: str) -> str:
    given = URL(url)
    if given.scheme not in {"http", "https"} or not given.host or given.query or given.fragment or given.user:
        raise validation_problem(
            f'"{url}" is not the URL of a server; write it like http://prometheus.monitoring:9090'
        )
    if why := find_forbidden_address(given.host):
        raise validation_problem(f'"{url}" is {why}; name another server')
    return url.rstrip("/")


def _check_webhook_url(url: str) -> str:
    given = URL(url)
    if given.scheme != "https" or not given.host or given.query or given.fragment or given.user:
        raise validation_problem(
            f'"{url}" is not a URL that an API server can call; write it like https://host:9443'
        )
    return url.rstrip("/")


def _check_open_cost_url(url: str) -> str:
    given = URL(url)
    if given.scheme not in {"http", "https"} or not given.host or given.query or given.fragment or given.user:
        # Without the URL, which may contain a password.
        raise validation_problem(
            "this is not the URL of a server without credentials and query; write it like http://opencost.opencost:9003"
        )
    try:
        given.host.encode("idna")
    except UnicodeError:
        raise validation_problem(
            "the host is not a name; write it like http://opencost.opencost:9003"
        ) from None
    return url.rstrip("/")


Address = Annotated[str, AfterValidator(_check_address)]
KpiEndpoint = Annotated[str, AfterValidator(_check_kpi_endpoint)]
OpenCostURL = Annotated[
    str, Field(pattern=r"^https?://[^\s]+$", max_length=500), AfterValidator(_check_open_cost_url)
]
PromQL = Annotated[str, Field(max_length=8192), AfterValidator(_check_promql)]
StoreURL = Annotated[str, AfterValidator(_check_store_url)]
WebhookURL = Annotated[str, AfterValidator(_check_webhook_url)]


def find_secrets(settings: Mapping[str, Any]) -> Iterator[str]:
    """List the settings that contain a secret instead of the name of a file that holds it."""
    for name, value in settings.items():
        if isinstance(value, Mapping):
            yield from (f"{name}.{below}" for below in find_secrets(value))
        elif _SECRET.search(name) and isinstance(value, str):
            yield name
