"""Choose the method by which a workload gets a new size: in place, by a rollout, by eviction, by its
template, or not.

The careful method comes first: in place where cluster, policy and containers allow it, and nothing that
restarts a pod unless the policy allows that.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from trimtab.actuation.actions import Skip
from trimtab.actuation.change_annotations import UpdateMethod
from trimtab.actuation.decide.observation import Observation
from trimtab.actuation.resources import Sizes, keep_memory_limit, restrict_to_fields
from trimtab.api.optimizationpolicy import TemplateUpdate
from trimtab.kube.kinds.pod_requests import qos_class
from trimtab.kube.kinds.pods import Container, Pod, Resources
from trimtab.kube.kinds.workloads import Workload

_RESTARTS = "resizing container {} restarts it (resizePolicy)"
# The templates of these kinds merge by container. Other kinds may treat the list as atomic, so that applying
# one container would remove the rest.
_MERGED_TEMPLATES = {"Deployment", "StatefulSet", "DaemonSet", "ReplicaSet"}


@dataclass(frozen=True, slots=True)
class MethodChoice:
    """A method and its properties."""

    method: UpdateMethod
    patches_template: bool = False
    restarts: bool = False
    """True if a resize restarts a container."""
    allows_canary: bool = False
    """True if a few pods can get the size first."""


def choose_method(observation: Observation, *, before: Sizes, after: Sizes) -> MethodChoice | Skip:
    """Return the method to get from one size to another, or the reason why there is none."""
    strategy = observation.strategy
    containers = _running_containers(observation)
    was, will_be = _qos_class_with(containers, before), _qos_class_with(containers, after)
    if was != will_be and strategy.keep_qos_class:
        return Skip(
            f"its pods would change from QoS class {was} to {will_be}; "
            "set updateStrategy.updateRequestsOnly: false so that limits follow, or keepQosClass: false"
        )
    if observation.workload.kind == "CronJob":
        if strategy.template is TemplateUpdate.NEVER:
            return Skip(
                "a CronJob is sized by its template, and updateStrategy.template is Never; set it to AsNeeded"
            )
        return MethodChoice(UpdateMethod.TEMPLATE, patches_template=True)
    obstacle = _in_place_obstacle(observation, before, after)
    if was != will_be:
        obstacle = obstacle or "the QoS class of a running pod cannot change"
    restarts = _restarted_container(containers, before, after)
    if restarts and not observation.may_recreate:
        obstacle = obstacle or _RESTARTS.format(restarts)
    return (
        choose_replacement(observation, obstacle)
        if obstacle
        else _choose_in_place(observation, restarts=bool(restarts))
    )


def _running_containers(observation: Observation) -> tuple[Container, ...]:
    return observation.live[0].containers if observation.live else observation.workload.containers


def _choose_in_place(observation: Observation, *, restarts: bool) -> MethodChoice:
    patchable, quiet = _is_template_patchable(observation), keeps_running_pods(observation)
    rolls = patchable and not quiet and observation.strategy.template is TemplateUpdate.ALWAYS
    if rolls and not _halted_reason(observation.workload):
        return MethodChoice(
            UpdateMethod.ROLLOUT, patches_template=True, restarts=restarts, allows_canary=True
        )
    return MethodChoice(
        UpdateMethod.IN_PLACE, patches_template=patchable and quiet, restarts=restarts, allows_canary=True
    )


def choose_replacement(observation: Observation, obstacle: str) -> MethodChoice | Skip:
    """Return the method that replaces pods, because of this obstacle to resizing them."""
    kind, quiet = observation.workload.kind, keeps_running_pods(observation)
    if not observation.may_recreate:
        return Skip(_explain_forbidden(observation, obstacle))
    if kind not in _MERGED_TEMPLATES:
        return Skip(f"{obstacle}, and Trimtab does not change the template of a {kind}; set the size there")
    if not _is_template_patchable(observation):
        return Skip(
            f"{obstacle}, and a replaced pod would have the old size because updateStrategy.template is Never; "
            "set it to AsNeeded"
        )
    if (halted := _halted_reason(observation.workload)) and not quiet:
        return Skip(f"{obstacle}, and {halted}")
    return MethodChoice(UpdateMethod.RECREATE if quiet else UpdateMethod.ROLLOUT, patches_template=True)


def _explain_forbidden(observation: Observation, obstacle: str) -> str:
    setting = "allowRecreateOnOOM or allowRecreate" if observation.desired.is_urgent else "allowRecreate"
    return f"{obstacle}, and updateStrategy.allowRecreate is false; set {setting} to true to replace pods"


def explain_restart(observation: Observation, before: Sizes, after: Sizes) -> str:
    """Return which container would restart and what would allow it; empty if none would."""
    possible = {name: restrict_to_fields(before[name], wanted) for name, wanted in after.items()}
    name = _restarted_container(_running_containers(observation), before, possible)
    return _explain_forbidden(observation, _RESTARTS.format(name)) if name else ""


def _is_template_patchable(observation: Observation) -> bool:
    return (
        observation.workload.kind in _MERGED_TEMPLATES
        and observation.strategy.template is not TemplateUpdate.NEVER
    )


def keeps_running_pods(observation: Observation) -> bool:
    """Return whether a changed template leaves running pods as they are."""
    return observation.workload.kind == "ReplicaSet" or observation.workload.update_strategy == "OnDelete"


def _halted_reason(workload: Workload) -> str:
    """Return why a rollout would not reach all pods; empty if it would."""
    if workload.paused:
        return "its rollouts are paused; resume them (kubectl rollout resume)"
    return (
        f"its rollouts stop at spec.updateStrategy.rollingUpdate.partition {workload.partition}"
        if workload.partition
        else ""
    )


def is_restart_free(containers: Iterable[Container], before: Sizes, after: Sizes) -> bool:
    """Return whether no container restarts when it is resized in place."""
    return not _restarted_container(containers, before, after)


def limit_to_in_place(observation: Observation, before: Sizes, after: Sizes) -> dict[str, Resources]:
    """Return the part of a size that is possible in place: no field is added or removed, no memory limit is
    lowered where the cluster cannot do that, and no container restarts (resizePolicy) unless pods may be replaced.
    """
    found = {name: restrict_to_fields(before[name], wanted) for name, wanted in after.items()}
    if not observation.may_recreate:
        found |= _keep_restarting_sizes(observation, before, found)
    while lowered := _find_lowered_limit(observation, before, found):
        found[lowered] = keep_memory_limit(before[lowered], found[lowered])
    return found


def _keep_restarting_sizes(observation: Observation, before: Sizes, after: Sizes) -> dict[str, Resources]:
    """Return the sizes of the containers that restart when they are resized, as far as that keeps them running.

    Otherwise one such container would keep all others from their sizes for ever.
    """
    return {
        each.name: Resources.from_pairs(
            (before if each.restart_on_cpu_resize else after)[each.name].cpu,
            (before if each.restart_on_memory_resize else after)[each.name].memory,
        )
        for each in _running_containers(observation)
        if each.name in after
    }


def list_resizable(observation: Observation, pods: Iterable[Pod], after: Sizes) -> list[Pod]:
    """List the pods that can get a size in place.

    Where the cluster lowers no memory limit, a pod with a larger limit than the others, for example from an
    earlier template, cannot. It keeps its size, and must not keep the others from theirs.
    """

    def would_lower(container: Container) -> bool:
        wanted = after.get(container.name)
        is_fixed = observation.desired.memory_limits_fixed and not container.restart_on_memory_resize
        return is_fixed and wanted is not None and keep_memory_limit(container.resources, wanted) != wanted

    return [pod for pod in pods if not any(map(would_lower, pod.containers))]


def _find_lowered_limit(observation: Observation, before: Sizes, after: Sizes) -> str:
    """Return the first container whose memory limit would be lowered where the cluster cannot do that; empty
    if there is none.
    """
    if not observation.desired.memory_limits_fixed or not observation.live:
        return ""
    restarts = {each.name for each in observation.live[0].containers if each.restart_on_memory_resize}
    return next(
        (
            name
            for name, wanted in after.items()
            if name not in restarts and keep_memory_limit(before[name], wanted) != wanted
        ),
        "",
    )


def _in_place_obstacle(observation: Observation, before: Sizes, after: Sizes) -> str:
    """Return why running pods cannot be resized in place; empty if they can."""
    if not observation.strategy.allow_in_place_resize:
        return "updateStrategy.allowInPlaceResize is false"
    if not observation.desired.can_resize_in_place:
        return "this cluster cannot resize pods in place"
    if lowered := _find_lowered_limit(observation, before, after):
        return f"Kubernetes before 1.34 does not lower the memory limit of container {lowered} in place"
    for name, old in before.items():
        if restrict_to_fields(old, after[name]) != after[name]:
            # The server rejects a removal, and a field that was added in place could not be reverted.
            return f"requests or limits of container {name} cannot be added or removed in place"
    return ""


def _restarted_container(containers: Iterable[Container], before: Sizes, after: Sizes) -> str:
    """Return the first container that restarts when it is resized; empty if none does."""
    for container in containers:
        old, new = before.get(container.name), after.get(container.name)
        if old is None or new is None:
            continue
        cpu_restarts = container.restart_on_cpu_resize and old.cpu != new.cpu
        memory_restarts = container.restart_on_memory_resize and old.memory != new.memory
        if cpu_restarts or memory_restarts:
            return container.name
    return ""


def _qos_class_with(containers: Iterable[Container], sizes: Sizes) -> str:
    return qos_class(sizes.get(each.name, each.resources) for each in containers)
