"""The emergency stop: a ConfigMap that operator and agents watch; while it exists, they change nothing.

It is a ConfigMap, so that kubectl alone can create it, and needs neither a leader nor a webhook.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import msgspec

from trimtab.api.fields import format_time
from trimtab.kube.cache.informer import Scope
from trimtab.kube.cache.informer_set import InformerPort
from trimtab.kube.cache.projection import MetadataWire, Projection, parse_resource_version, to_unix_seconds
from trimtab.kube.rest.resources import CONFIG_MAPS
from trimtab.printable import shorten

STOP_NAME = "trimtab-stop"
REASON_KEY, AUTHOR_KEY = "reason", "by"
_MAX_TEXT = 200


class EmergencyStop(msgspec.Struct, frozen=True, gc=False, eq=False):
    """An emergency stop in effect."""

    namespace: str
    name: str
    uid: str
    version: int
    created: int
    author: str
    reason: str

    def __str__(self) -> str:
        author = f" by {self.author}" if self.author else ""
        reason = f": {self.reason}" if self.reason else ""
        return f"Trimtab was stopped{author} at {format_time(self.created)}{reason}; `trimtab resume` ends the stop"


class EmergencyStopWire(msgspec.Struct, frozen=True, gc=False):
    """The ConfigMap of an emergency stop, as sent."""

    metadata: MetadataWire = MetadataWire()
    data: Mapping[str, str] | None = None

    def to_stop(self) -> EmergencyStop:
        found, data = self.metadata, self.data or {}
        return EmergencyStop(
            namespace=found.namespace,
            name=found.name,
            uid=found.uid,
            version=parse_resource_version(found.resource_version),
            created=to_unix_seconds(found.creation_timestamp),
            author=shorten(data.get(AUTHOR_KEY, ""), _MAX_TEXT),
            reason=shorten(data.get(REASON_KEY, ""), _MAX_TEXT),
        )


class EmergencyStopWatch:
    """The emergency stop of one installation, as a set of informers sees it.

    While the API server cannot be reached, what was seen last holds.
    """

    def __init__(self, informers: InformerPort, namespace: str) -> None:
        self._namespace = namespace
        # Optional: where an older account may not read it, everything else goes on, and the informers report the error.
        self._stops = informers.watch_resource(
            CONFIG_MAPS,
            Projection(wire_type=EmergencyStopWire, project=EmergencyStopWire.to_stop),
            scope=Scope(
                namespace=namespace,
                fields=f"metadata.name={STOP_NAME}",
                display_name=f"configmap {STOP_NAME}",
            ),
            optional=True,
        )
        self.current: EmergencyStop | None = None
        """The emergency stop in effect; None if there is none. An attribute, because every decision asks for it."""
        self._stops.on_change(self._read)

    def _read(self, _old: EmergencyStop | None, _new: EmergencyStop | None) -> None:
        self.current = self._stops.get(STOP_NAME, self._namespace)

    def on_change(self, listener: Callable[[EmergencyStop | None], None]) -> None:
        """Call the listener when a stop begins or ends."""
        self._stops.on_change(lambda _old, _new: listener(self.current))
