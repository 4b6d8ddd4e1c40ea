"""The plugin registry of this process: configured plugins, and the listener for others.

Every replica listens, so that the next leader already knows the plugins.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import structlog

from trimtab.errors import TrimtabError
from trimtab.intents.plugins.messages import plugin_pb2 as pb
from trimtab.intents.plugins.protocol import VERSION, CallRefusedError, PluginTls
from trimtab.intents.plugins.registry import PluginRegistry
from trimtab.operator.config.intents import RemotePluginSettings

log = structlog.get_logger(__name__)

_TYPES = {"actuator": pb.PLUGIN_TYPE_ACTUATOR, "planner": pb.PLUGIN_TYPE_PLANNER}


@contextmanager
def open_plugin_registry(settings: RemotePluginSettings) -> Iterator[PluginRegistry]:
    """Open the plugin registry for the lifetime of the process."""
    files = settings.certificate_files
    tls = PluginTls(files.certificate, files.key, files.authority) if files else None
    registry = PluginRegistry(tls=tls)
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
