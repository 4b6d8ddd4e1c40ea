"""Answer the API server's admission requests: validate policies, set their defaults, and size new pods.

A request that fails is answered with 500, for which the API server applies the failurePolicy: after a bug the owner's
choice decides, not chance.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable, Sequence
from functools import partial
from typing import Final

import structlog
from aiohttp import web

from trimtab.aio import FairSlots
from trimtab.api import InvalidObjectError, OptimizationPolicy
from trimtab.kube.errors import DECODE_ERRORS
from trimtab.kube.kinds.policies import Policy
from trimtab.operator.config.model import OperatorConfig
from trimtab.operator.metrics import Metrics
from trimtab.operator.policy.validation import review_policy
from trimtab.operator.webhook.pod_sizing import SizePod, build_pod_patch
from trimtab.operator.webhook.review import (
    AdmissionRequest,
    AdmissionResponse,
    decode_request,
    encode_response,
    read_metadata,
)

log = structlog.get_logger(__name__)

VALIDATE_PATH: Final = "/validate"
MUTATE_PATH: Final = "/mutate"
PODS_PATH: Final = "/pods"

_MAX_BODY_BYTES = 3 << 20
"""The largest request: an object has at most 1.5 MB in etcd, and a request holds two of them."""
_SMALL_BODY_BYTES = 128 << 10
"""The size up to which requests are received at once: the number of connections bounds the memory that they take."""
_MAX_LARGE_REQUESTS, _MAX_REVIEWS = 4, 4
"""Each webhook receives this many large requests at a time, and reviews this many; others wait and their peers take turns."""
_MAX_POLICY_REVIEWS = 2
"""The reviews of policies at a time, of both webhooks."""
_REST, _MAX_REST = 7.0, 1.0
"""A review keeps its slot for this multiple of its CPU time, and for this many seconds at most.

Any pod may send costly queries, and the rest of the operator waits while one is checked: so all reviews together take
a quarter of a CPU at most.
"""
_SMALL_READ_TIMEOUT, _LARGE_READ_TIMEOUT = 2.0, 4.0
"""The seconds for the body of a request: a client that sends slowly must not keep others out."""

ListPolicies = Callable[[], Iterable[Policy]]
"""A function that returns the existing policies, from a cache."""


class AdmissionHandlers:
    """Handlers that answer with the current configuration and policies."""

    def __init__(
        self,
        *,
        config: Callable[[], OperatorConfig],
        policies: ListPolicies,
        size_pod: SizePod | None = None,
        metrics: Metrics | None = None,
    ) -> None:
        self._config = config
        self._policies = policies
        self._size_pod = size_pod
        self._metrics = metrics or Metrics()

    def build_application(self) -> web.Application:
        application = web.Application(client_max_size=_MAX_BODY_BYTES)
        reviewing = FairSlots(_MAX_POLICY_REVIEWS)
        # The policies are listed here and not in the thread, because the cache keeps changing.
        validating = self._make_handler(
            "validate",
            lambda request: _review_in_thread(partial(self.validate, request, tuple(self._policies()))),
            reviewing,
        )
        application.router.add_post(VALIDATE_PATH, validating)
        mutating = self._make_handler(
            "mutate", lambda request: _review_in_thread(partial(self.mutate, request)), reviewing
        )
        application.router.add_post(MUTATE_PATH, mutating)
        if size_pod := self._size_pod:
            application.router.add_post(
                PODS_PATH,
                self._make_handler(
                    "pods",
                    lambda request: _review_pod(request, size_pod),
                    FairSlots(_MAX_REVIEWS),
                    with_spec=False,
                ),
            )
        return application

    def validate(self, request: AdmissionRequest, others: Sequence[Policy]) -> AdmissionResponse:
        """Validate a policy beside these others."""
        try:
            policy = OptimizationPolicy.read(request.object or {})
        except InvalidObjectError as error:
            return AdmissionResponse(problems=error.problems if request.changes_spec else ())
        review = review_policy(policy, others=others, config=self._config())
        return AdmissionResponse(
            problems=review.problems if request.changes_spec else (),
            warnings=(*review.warnings, *OptimizationPolicy.list_deprecated_fields(request.object or {})),
        )

    def mutate(self, request: AdmissionRequest) -> AdmissionResponse:
        """Set the organisation's maxima where a policy sets none."""
        if not request.changes_spec:
            return AdmissionResponse()  # a patch would make the API server validate it again
        try:
            policy = OptimizationPolicy.read(request.object or {})
        except InvalidObjectError:
            return AdmissionResponse()  # the CRD or `validate` denies it with the reason
        missing = self._config().limits.default_maxima(policy.spec)
        return AdmissionResponse(
            patch=[
                {"op": "add", "path": f"/spec/{path}", "value": str(value)} for path, value in missing.items()
            ]
        )

    def _make_handler(
        self,
        webhook: str,
        review: Callable[[AdmissionRequest], Awaitable[AdmissionResponse]],
        reviewing: FairSlots,
        *,
        with_spec: bool = True,
    ) -> Callable[[web.Request], Awaitable[web.Response]]:
        self._metrics.webhook_reviews.labels(
            webhook, "failed"
        )  # start at 0, so that an alert sees the first failure

        receiving = FairSlots(_MAX_LARGE_REQUESTS)

        async def handle(received: web.Request) -> web.Response:
            size, peer = received.content_length, received.remote or ""
            if size is not None and size <= _SMALL_BODY_BYTES:
                body = await read_body(received, _SMALL_READ_TIMEOUT)
            else:
                # Large bodies are received by few at a time, so that no flood uses up the memory.
                async with receiving.hold(peer):
                    body = await read_body(received, _LARGE_READ_TIMEOUT)
            async with reviewing.hold(peer):
                return await answer_review(body)

        async def read_body(received: web.Request, seconds: float) -> bytes:
            try:
                async with asyncio.timeout(seconds):
                    return await received.read()
            # The peer sent too slowly, or went away.
            except (TimeoutError, ConnectionError):
                self._count(webhook, "failed")
                raise web.HTTPRequestTimeout from None

        async def answer_review(body: bytes) -> web.Response:
            try:
                request = decode_request(body, with_spec=with_spec)
            except DECODE_ERRORS as error:
                self._count(webhook, "failed")
                return web.Response(status=400, text=f"the request body is not an AdmissionReview: {error}\n")
            try:
                answer = await review(request)
            except Exception:
                self._count(webhook, "failed")
                log.exception("webhook.failed", webhook=webhook)
                return web.Response(
                    status=500, text="Trimtab's webhook failed; see webhook.failed in the operator's log\n"
                )
            self._count(webhook, "admitted" if answer.is_allowed else "refused")
            if not answer.is_allowed:
                log.info(
                    "webhook.request_denied", policy=_object_name(request), problems=list(answer.problems)
                )
            return web.Response(body=encode_response(request, answer), content_type="application/json")

        return handle

    def _count(self, webhook: str, answer: str) -> None:
        self._metrics.webhook_reviews.labels(webhook, answer).inc()


async def _review_in_thread(review: Callable[[], AdmissionResponse]) -> AdmissionResponse:
    """Review in a thread, because a strategy's first use imports and compiles while the Lease must be renewed."""

    def measure() -> tuple[AdmissionResponse, float]:
        started = time.thread_time()
        return review(), time.thread_time() - started

    answer, seconds = await asyncio.to_thread(measure)
    await _rest(min(_MAX_REST, _REST * seconds))
    return answer


async def _rest(seconds: float) -> None:
    await asyncio.sleep(seconds)


async def _review_pod(request: AdmissionRequest, size_pod: SizePod) -> AdmissionResponse:
    """Answer from memory and without a thread: a pod waits for it."""
    return AdmissionResponse(patch=build_pod_patch(request.raw, size_pod))


def _object_name(request: AdmissionRequest) -> str:
    metadata = read_metadata(request.object or {})
    return f"{metadata.get('namespace', '')}/{metadata.get('name', '')}"
