"""The model of availability: a workload is available while at least one pod is.

A set of pods has the availability 1 - Π(1 - a). Measured availability may be defined differently, such as by
successful requests, so the model scales the measured unavailability in proportion to that of the pods.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from math import exp, fsum, log
from typing import Any, Self

from trimtab.intents.effects.inputs import InputBatch, ModelInputs
from trimtab.intents.effects.model import PredictedChanges
from trimtab.intents.state import PodState, TargetState

KIND = "serving"
NEW_POD_AVAILABILITY = 0.99
"""The assumed availability of a new pod."""
_PRIOR_PODS = 20
"""The weight of the prior, as a number of pods."""
_MIN_SHARE = 1e-9


class AvailabilityModel:
    """A model of availability that learns only the availability of new pods."""

    def __init__(self, new: float = NEW_POD_AVAILABILITY, *, samples: int = 0) -> None:
        self.new_pod_availability, self.samples = new, samples

    def predict_changes(self, batch: InputBatch, value: float) -> PredictedChanges:
        was = batch.inputs[0]
        shares = {id(was.pods): _log_all_down(was.pods)}
        before = self._log_unavailability(was, shares)
        found = []
        for each in batch.inputs[1:]:
            if each.pods is was.pods and each.replicas == was.replicas:
                found.append(0.0)
                continue
            missing = self._log_unavailability(each, shares)
            if value < 1.0:
                missing += log(1.0 - value) - before
            found.append(log(max(_MIN_SHARE, 1.0 - exp(min(0.0, missing))) / value))
        return found, [0.0] * len(found)

    def _log_unavailability(self, at: ModelInputs, shares: dict[int, float]) -> float:
        """Return the logarithm of the share of time in which no pod is available, because the share of forty pods
        is too small for a float. `shares` caches the values of known pods.
        """
        share = shares.get(id(at.pods))
        if share is None:
            share = shares[id(at.pods)] = _log_all_down(at.pods)
        new = at.replicas - len(at.pods)
        return share + new * log(max(_MIN_SHARE, 1.0 - self.new_pod_availability)) if new > 0 else share

    @classmethod
    def fit_states(cls, states: Iterable[TargetState]) -> Self:
        """Fit the model to the last observation of each pod."""
        last = {pod.name: pod.availability for state in states for pod in state.pods}
        share = (sum(last.values()) + NEW_POD_AVAILABILITY * _PRIOR_PODS) / (len(last) + _PRIOR_PODS)
        return cls(min(share, NEW_POD_AVAILABILITY), samples=len(last))

    def encode(self) -> dict[str, Any]:
        return {"model": KIND, "version": 1, "new": self.new_pod_availability, "samples": self.samples}

    @classmethod
    def decode(cls, data: Mapping[str, Any]) -> Self:
        return cls(min(1.0, max(0.0, float(data["new"]))), samples=int(data.get("samples", 0)))


def _log_all_down(pods: Sequence[PodState]) -> float:
    """Return the logarithm of the share of time in which none of the pods is available; it is finite."""
    return fsum([log(1.0 - min(pod.availability, 1.0 - _MIN_SHARE)) for pod in pods])
