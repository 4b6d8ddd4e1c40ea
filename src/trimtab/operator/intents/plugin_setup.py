"""The plugin registry of this process: configured plugins, and the listener for others.

Every replica listens, so that the next leader already knows the plugins.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Never

import structlog

from trimtab.errors import TrimtabError
from trimtab.intents.plugins.messages import plugin_pb2 as pb
from trimtab.intents.plugins.protocol import VERSION, CallRefusedError, PluginTls
from trimtab.intents.plugins.registry import CHECK_INTERVAL, PluginRegistry
from trimtab.operator.config.intents import RemotePluginSettings
from trimtab.operator.metrics import Metrics

log = structlog.get_logger(__name__)

_TYPES = {"actuator": pb.PLUGIN_TYPE_ACTUATOR, "planner": pb.PLUGIN_TYPE_PLANNER}
_TYPE_NAMES = {type_: name for name, type_ in _TYPES.items()}


@contextmanager
def open_plugin_registry(settings: RemotePluginSettings) -> Iterator[PluginRegistry]:
    """Open the plugin registry for the lifetime of the process."""
    files = settings.certificate_files
    tls = PluginTls(files.certificate, files.key, files.authority) if files else None
    registry = PluginRegistry(tls=tls, allowed_endpoints=settings.endpoints)
    for each in settings.static:
        info = pb.PluginInfo(
            type=_TYPES[each.type], name=each.name, endpoint=each.endpoint, versions=[VERSION]
        )
        try:
            registry.add_configured(info)
        except CallRefusedError as refused:
            raise TrimtabError(f"intents.plugins.static: {each.name}: {refused}") from None
    if settings.address is None:
        try:
            yield registry
        finally:
            registry.close()
        return
    with registry.serve(settings.address) as port:
        log.info("plugins.listening", port=port)
        yield registry


async def check_plugins(registry: PluginRegistry, metrics: Metrics) -> Never:
    """Check the plugins periodically, and count those that answer."""
    while True:
        await asyncio.to_thread(registry.check, time.monotonic())
        counts: dict[tuple[str, str], int] = {}
        for known in registry.list_all():
            labels = _TYPE_NAMES.get(known.info.type, "other"), "no" if known.last_error else "yes"
            counts[labels] = counts.get(labels, 0) + 1
        metrics.intent_plugins.clear()
        for (type_, answers), count in counts.items():
            metrics.intent_plugins.labels(type_, answers).set(count)
        await asyncio.sleep(CHECK_INTERVAL)
