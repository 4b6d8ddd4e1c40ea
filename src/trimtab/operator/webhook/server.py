"""The questions that the API server puts to us over HTTP: may this policy come in, what shall be filled in, and with what
sizes is this pod born.

An answer that cannot be given is a 500, on which the API server does what failurePolicy says: a bug of ours then
refuses or lets in as its owner chose, and not as it happens.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Final

import structlog
from aiohttp import web

from trimtab.api import InvalidObjectError, OptimizationPolicy
from trimtab.kube.errors import NOT_UNDERSTOOD
from trimtab.kube.kinds.policies import Policy
from trimtab.operator.config.model import OperatorConfig
from trimtab.operator.metrics import Metrics
from trimtab.operator.policy.validation import judge
from trimtab.operator.webhook.pod_patch import Births, birth_patch
from trimtab.operator.webhook.review import Answer, Request, reply, request_of

log = structlog.get_logger(__name__)

VALIDATE: Final = "/validate"
MUTATE: Final = "/mutate"
PODS: Final = "/pods"

# An object has at most 3 MB in etcd, and a question holds two of them.
_LARGEST = 16 << 20

Policies = Callable[[], Iterable[Policy]]
"""The policies that are there, from a cache."""


class Admission:
    """The answers, by the configuration and the policies of the moment."""

    def __init__(
        self,
        *,
        config: Callable[[], OperatorConfig],
        policies: Policies,
        births: Births | None = None,
        metrics: Metrics | None = None,
    ) -> None:
        self._config = config
        self._policies = policies
        self._births = births
        self._metrics = metrics or Metrics()

    def application(self) -> web.Application:
        application = web.Application(client_max_size=_LARGEST)
        # In a thread: a strategy's first use imports and compiles, and the lease must be renewed meanwhile. But the
        # policies of now are counted up here, since the cache goes on changing.
        validating = self._asked(
            "validate", lambda asked: asyncio.to_thread(self.validate, asked, tuple(self._policies()))
        )
        application.router.add_post(VALIDATE, validating)
        mutating = self._asked("mutate", lambda asked: asyncio.to_thread(self.mutate, asked))
        application.router.add_post(MUTATE, mutating)
        if births := self._births:
            application.router.add_post(PODS, self._asked("pods", lambda asked: _born(asked, births)))
        return application

    def validate(self, request: Request, others: Sequence[Policy]) -> Answer:
        """Whether a policy may come in beside these others."""
        try:
            policy = OptimizationPolicy.read(request.object or {})
        except InvalidObjectError as error:
            return Answer(problems=error.problems if request.changes_spec else ())
        verdict = judge(policy, others=others, config=self._config())
        return Answer(problems=verdict.problems if request.changes_spec else (), warnings=verdict.warnings)

    def mutate(self, request: Request) -> Answer:
        """What is filled in: the maxima of the organisation where a policy states none."""
        if not request.changes_spec:
            return Answer()  # or it would be judged anew, by what is filled in
        try:
            policy = OptimizationPolicy.read(request.object or {})
        except InvalidObjectError:
            return Answer()  # the CRD or `validate` refuses it, and says why
        missing = self._config().limits.defaults(policy.spec)
        return Answer(
            patch=[
                {"op": "add", "path": f"/spec/{path}", "value": str(value)} for path, value in missing.items()
            ]
        )

    def _asked(
        self, webhook: str, answering: Callable[[Request], Awaitable[Answer]]
    ) -> Callable[[web.Request], Awaitable[web.Response]]:
        self._metrics.webhook_reviews.labels(webhook, "failed")  # at 0, so that the first one can be seen

        async def handle(asked: web.Request) -> web.Response:
            try:
                request = request_of(await asked.read())
            except NOT_UNDERSTOOD as error:
                self._count(webhook, "failed")
                return web.Response(status=400, text=f"this is no AdmissionReview: {error}\n")
            try:
                answer = await answering(request)
            except Exception:
                self._count(webhook, "failed")
                log.exception("webhook.failed", webhook=webhook)
                return web.Response(status=500, text="the webhook failed; its log says why\n")
            self._count(webhook, "admitted" if answer.admits else "refused")
            if not answer.admits:
                log.info("webhook.refused", policy=_name(request), problems=list(answer.problems))
            return web.Response(body=reply(request, answer), content_type="application/json")

        return handle

    def _count(self, webhook: str, answer: str) -> None:
        self._metrics.webhook_reviews.labels(webhook, answer).inc()


async def _born(request: Request, births: Births) -> Answer:
    """From memory, and in no thread: a pod waits for it."""
    return Answer(patch=birth_patch(request.object or {}, births))


def _name(request: Request) -> str:
    metadata = (request.object or {}).get("metadata") or {}
    return f"{metadata.get('namespace', '')}/{metadata.get('name', '')}"
