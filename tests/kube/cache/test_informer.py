"""An informer's cache equals the server, whatever happens to the connection between them."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import permutations
from typing import Any

import msgspec
import pytest

from harness.builders.records import project_object
from harness.e2e.informer_probe import eventually
from trimtab.kube.cache.informer import Informer
from trimtab.kube.kinds.pods import pod_projection
from trimtab.kube.kinds.quotas import limit_range_projection
from trimtab.kube.rest.client import Object
from trimtab.kube.rest.resources import LIMIT_RANGES

PENDING = {"type": "PodResizePending", "status": "True", "reason": "Infeasible", "message": "too large"}
IN_PROGRESS = {"type": "PodResizeInProgress", "status": "True", "reason": "", "message": ""}


@pytest.mark.parametrize("conditions", list(permutations([PENDING, IN_PROGRESS])))
def test_pod_record_with_both_resize_conditions_has_the_reason_of_the_later_resize(
    conditions: tuple[Object, ...],
) -> None:
    manifest = {"metadata": {"name": "web"}, "status": {"conditions": list(conditions)}}
    found = project_object(pod_projection(), manifest).resize
    assert found is not None
    assert (found.condition, found.reason, found.message) == ("PodResizePending", "Infeasible", "too large")


@pytest.mark.parametrize(
    ("condition", "since"),
    [
        ({"status": "True", "lastTransitionTime": "2026-11-01T09:00:00Z"}, 1793523600),
        ({"status": "False", "lastTransitionTime": "2026-11-01T09:00:00Z"}, 0),
        ({"status": "True", "lastTransitionTime": None}, 0),
        ({"status": "True", "lastTransitionTime": "soon"}, 0),
        ({"status": "True"}, 0),
    ],
)
def test_pod_record_has_the_time_since_which_it_is_ready(condition: Object, since: int) -> None:
    manifest = {"metadata": {"name": "web"}, "status": {"conditions": [{"type": "Ready", **condition}]}}
    assert project_object(pod_projection(), manifest).ready_since == since


class _Lines:
    """A server whose watch says these lines and then no more."""

    def __init__(self, *lines: bytes) -> None:
        self._lines = lines

    @asynccontextmanager
    async def watch(self, *_: Any, **__: Any) -> AsyncIterator[AsyncIterator[bytes]]:
        async def chunks() -> AsyncIterator[bytes]:
            for line in self._lines:
                yield line + b"\n"
            await asyncio.Event().wait()

        yield chunks()


def _encode_event(kind: str, version: int, **spec: Any) -> bytes:
    found = {"metadata": {"name": "odd", "uid": "1", "resourceVersion": str(version)}, "spec": spec}
    return msgspec.json.encode({"type": kind, "object": found})


LISTED = msgspec.json.encode(
    {
        "type": "BOOKMARK",
        "object": {
            "metadata": {"resourceVersion": "1", "annotations": {"k8s.io/initial-events-end": "true"}}
        },
    }
)
UNDECODABLE = {"limits": "none"}
UNFOLDABLE = {"limits": [{"type": "Container", "max": {"cpu": "a lot"}}]}


@pytest.mark.parametrize("malformed", [UNDECODABLE, UNFOLDABLE], ids=["undecodable", "unfoldable"])
@pytest.mark.parametrize("kind", ["MODIFIED", "DELETED"])
async def test_informer_forgets_an_object_that_can_no_longer_be_read(kind: str, malformed: Object) -> None:
    server: Any = _Lines(_encode_event("ADDED", 1, limits=[]), LISTED, _encode_event(kind, 2, **malformed))
    informer = Informer(server, LIMIT_RANGES, limit_range_projection())
    changes: list[tuple[bool, bool]] = []
    informer.cache.on_change(lambda old, new: changes.append((old is not None, new is not None)))
    following = asyncio.create_task(informer.run())
    await eventually(lambda: len(changes) == 2, what="both events were taken in")
    assert changes == [(False, True), (True, False)]
    assert len(informer.cache) == 0
    following.cancel()
    await asyncio.wait([following])
