"""Behaviour of Kubernetes that decisions work around, with the version in which it was seen and the upstream issue.

Each function can go once the oldest supported Kubernetes no longer behaves so.
"""

from __future__ import annotations

from collections.abc import Sequence

from trimtab.actuation.decide.observation import Observation
from trimtab.kube.kinds.pods import Pod


def is_crash_looping(pod: Pod) -> bool:
    """Return whether a container waits to be restarted.

    A resize meanwhile does not end the back-off (kubernetes/kubernetes#119838) and never reaches the cgroup of the
    pod (seen with Kubernetes 1.36), so more memory would not help. Once the container runs, both work.
    """
    return any(
        state.waiting_reason == "CrashLoopBackOff"
        # A kubelet reports the back-off late: for most of it the container state is still the last exit. Without
        # this, the resize would be sent in exactly the moments in which it has no effect.
        or (state.is_terminated and state.last_termination and state.last_termination.exit_code)
        for state in pod.container_statuses
    )


def pods_skipped_by_controller(observation: Observation, pods: Sequence[Pod]) -> list[Pod]:
    """Return the pods of a StatefulSet that its controller will not replace although the template has
    changed.

    It waits for each pod to be ready first, which a pod that crashes or finds no node never is: somebody has to
    delete the pod (kubernetes/kubernetes#67250, seen with Kubernetes 1.36).
    """
    workload = observation.workload
    # An unready pod may still be replaced until the controller has seen the template: evicting it before that would
    # recreate it from the old one.
    if workload.kind != "StatefulSet" or not workload.is_spec_observed:
        return []
    return [pod for pod in pods if not pod.ready]
