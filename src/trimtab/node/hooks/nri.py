"""An NRI plugin: the runtime asks it about each container before creating or updating it.

The runtime drops a plugin that takes longer than two seconds, so no decision within the deadline means no
change. The connection to a runtime is retried forever, with back-off.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TypeVar

import structlog
from google.protobuf.message import Message

from trimtab.node.hooks import nri_codec as terms
from trimtab.node.hooks import ttrpc
from trimtab.node.hooks.adjustments import (
    Adjustment,
    CountResult,
    DecideAdjustment,
    RuntimeContainer,
    ignore_result,
)
from trimtab.node.hooks.messages import nri_pb2 as pb
from trimtab.node.hooks.mux import Mux
from trimtab.timing import Backoff, LogOnce

PLUGIN_CONNECTION, RUNTIME_CONNECTION = 1, 2
PLUGIN, RUNTIME = "nri.pkg.api.v1alpha1.Plugin", "nri.pkg.api.v1alpha1.Runtime"
EVENTS = (pb.Event.CREATE_CONTAINER, pb.Event.UPDATE_CONTAINER)
REGISTRATION_SECONDS = 5.0
LIVE_STATES = (pb.ContainerState.CONTAINER_CREATED, pb.ContainerState.CONTAINER_RUNNING)

Q = TypeVar("Q", bound=Message)
A = TypeVar("A", bound=Message)

log = structlog.get_logger(__name__)


class NriPlugin:
    """Keeps a plugin registered with the runtime that listens on a socket."""

    def __init__(
        self,
        socket: Path,
        decide: DecideAdjustment,
        *,
        name: str = "trimtab",
        index: int = 50,
        deadline: float = 1.0,
        backoff: Backoff | None = None,
        count_result: CountResult = ignore_result,
    ) -> None:
        self.outcomes: Counter[str] = Counter()
        """The counts of registrations and of adjusted, unchanged and failed containers."""
        self.synchronized = asyncio.Event()
        """Set while the runtime has listed all its containers."""
        self._socket = socket
        self._decide = decide
        self._registration = pb.RegisterPluginRequest(plugin_name=name, plugin_idx=f"{index:02d}")
        self._deadline = deadline
        self._count_result = count_result
        self._backoff = backoff or Backoff(first=0.2, ceiling=10.0)
        self._rng = random.Random()  # noqa: S311 - jitter
        self._reset_sync()

    async def run(self) -> None:
        """Run until cancelled."""
        failures, reasons = 0, LogOnce()
        while True:
            registered = self.outcomes["registered"]
            try:
                await self._run_session()
                reason = "the runtime disconnected"
            except (OSError, TimeoutError, ttrpc.TtrpcError) as error:
                reason = str(error) or type(error).__name__
            failures = 1 if self.outcomes["registered"] > registered else failures + 1
            delay = self._backoff.delay(failures, rng=self._rng)
            if reasons.is_new(reason):
                log.info("nri.disconnected", socket=str(self._socket), reason=reason)
            await asyncio.sleep(delay)

    async def _run_session(self) -> None:
        """Serve one connection until it ends."""
        mux = Mux(*await asyncio.open_unix_connection(str(self._socket)))
        client = ttrpc.TtrpcClient(ttrpc.Channel(mux, RUNTIME_CONNECTION))
        service = ttrpc.Channel(mux, PLUGIN_CONNECTION)
        for connection in (PLUGIN_CONNECTION, RUNTIME_CONNECTION):
            mux.open_stream(connection)
        # Serving comes first: the runtime may configure us before it answers the registration.
        loops = [
            asyncio.create_task(each)
            for each in (ttrpc.serve(service, self._build_handlers()), client.run(), mux.run())
        ]
        try:
            registration = self._registration.SerializeToString()
            await client.call(RUNTIME, "RegisterPlugin", registration, timeout=REGISTRATION_SECONDS)
            self._count("registered")
            await asyncio.wait(loops, return_when=asyncio.FIRST_COMPLETED)
        finally:
            self.synchronized.clear()
            self._reset_sync()
            for loop in loops:
                loop.cancel()
            await asyncio.gather(*loops, return_exceptions=True)
            await mux.close()

    def _reset_sync(self) -> None:
        """Discard the partial list of pods and containers."""
        self._pods: dict[str, pb.PodSandbox] = {}
        self._containers: list[pb.Container] = []

    def _build_handlers(self) -> dict[str, ttrpc.Handler]:
        return {
            f"{PLUGIN}/Configure": _build_handler(pb.ConfigureRequest, self._configure),
            f"{PLUGIN}/Synchronize": _build_handler(pb.SynchronizeRequest, self._synchronize),
            f"{PLUGIN}/CreateContainer": _build_handler(pb.CreateContainerRequest, self._create_container),
            f"{PLUGIN}/UpdateContainer": _build_handler(pb.UpdateContainerRequest, self._update_container),
            f"{PLUGIN}/Shutdown": _build_handler(pb.Empty, self._shutdown),
        }

    async def _configure(self, request: pb.ConfigureRequest) -> pb.ConfigureResponse:
        log.info("nri.registered", runtime=request.runtime_name, version=request.runtime_version)
        return pb.ConfigureResponse(events=sum(1 << (event - 1) for event in EVENTS))

    async def _synchronize(self, request: pb.SynchronizeRequest) -> pb.SynchronizeResponse:
        """Receive all pods and containers, in several messages if there are many."""
        self._pods |= {pod.id: pod for pod in request.pods}
        self._containers += [container for container in request.containers if container.state in LIVE_STATES]
        if request.more:
            return pb.SynchronizeResponse(more=True)
        wanted = [
            (
                container,
                await self._decide_adjustment(
                    terms.parse_container(pod, container, container.linux.resources)
                ),
            )
            for container in self._containers
            if (pod := self._pods.get(container.pod_sandbox_id)) is not None
        ]
        self._reset_sync()
        self.synchronized.set()
        return pb.SynchronizeResponse(update=terms.build_updates(wanted))

    async def _create_container(self, request: pb.CreateContainerRequest) -> pb.CreateContainerResponse:
        wanted = await self._decide_adjustment(
            terms.parse_container(request.pod, request.container, request.container.linux.resources)
        )
        return pb.CreateContainerResponse(adjust=terms.build_adjustment(wanted) if wanted else None)

    async def _update_container(self, request: pb.UpdateContainerRequest) -> pb.UpdateContainerResponse:
        wanted = await self._decide_adjustment(
            terms.parse_container(request.pod, request.container, request.linux_resources)
        )
        return pb.UpdateContainerResponse(update=terms.build_updates([(request.container, wanted)]))

    async def _shutdown(self, _: pb.Empty) -> pb.Empty:
        return pb.Empty()

    async def _decide_adjustment(self, container: RuntimeContainer) -> Adjustment:
        """Decide an adjustment; no change if that fails or takes too long."""
        try:
            async with asyncio.timeout(self._deadline):
                wanted = await self._decide(container)
        except Exception as error:  # noqa: BLE001 - fail-open: the container must start
            log.warning(
                "nri.adjustment_failed", pod=f"{container.namespace}/{container.pod}", reason=repr(error)
            )
            self._count("failed")
            return Adjustment()
        self._count("adjusted" if wanted else "unchanged")
        return wanted

    def _count(self, result: str) -> None:
        self.outcomes[result] += 1
        self._count_result(result)


def _build_handler(question: type[Q], answer: Callable[[Q], Awaitable[A]]) -> ttrpc.Handler:
    async def handle(payload: bytes) -> bytes:
        return (await answer(question.FromString(payload))).SerializeToString()

    return handle
