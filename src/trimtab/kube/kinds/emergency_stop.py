"""The emergency stop: a ConfigMap that operator and agents watch; while it exists, they change nothing.

It is a ConfigMap, so that kubectl alone can create it, and needs neither a leader nor a webhook.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

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
    data: Any = None

    def to_stop(self) -> EmergencyStop:
        found = self.metadata
        # Whatever it contains, it is a stop.
        given = self.data if isinstance(self.data, Mapping) else {}
        data = {key: text for key, text in given.items() if isinstance(text, str)}
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

    While the ConfigMap cannot be read, what was seen last holds. A process that never could read it must not change
    anything: there may be a stop.
    """

    def __init__(self, informers: InformerPort, namespace: str) -> None:
        self._informers = informers
        self._namespace = namespace
        # Optional: where an account may not read it, the rest of the process goes on, and recommends.
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
        """The emergency stop that was seen last; None if there is none."""
        self._description = ""
        self._was_read = False
        self._stops.on_change(self._read)

    def _read(self, _old: EmergencyStop | None, _new: EmergencyStop | None) -> None:
        self.current = stop = self._stops.get(STOP_NAME, self._namespace)
        self._description = str(stop) if stop else ""

    @property
    def reason(self) -> str:
        """The reason why nothing may be changed: a stop, or that it is not known if there is one; empty if there is none."""
        if self._description or self._was_read:
            return self._description
        problem = self.problem
        self._was_read = not problem
        if not problem:
            return ""
        return f"It is not known if Trimtab was stopped: {problem}"

    @property
    def problem(self) -> str:
        """The reason why the ConfigMap cannot be read at the moment, or is not read yet; empty if there is none."""
        why = self._informers.unsynced_reason(CONFIG_MAPS, self._namespace)
        why = why or self._informers.errors_by_resource().get(str(CONFIG_MAPS), "")
        return f"ConfigMap {self._namespace}/{STOP_NAME} cannot be read: {why}" if why else ""

    def on_change(self, listener: Callable[[EmergencyStop | None], None]) -> None:
        """Call the listener when a stop begins or ends."""
        self._stops.on_change(lambda _old, _new: listener(self.current))
