"""A change put into a cluster, or shown to its API server for a verdict: the one part of this room that writes."""

from __future__ import annotations

from trimtab.actuation.template_patch import build_template_patch, list_removed
from trimtab.kube.errors import FieldManagerConflict, Status
from trimtab.kube.rest.client import Client, PatchType
from trimtab.scan.patches.change import ResourceChange


async def apply_change(client: Client, change: ResourceChange, *, force: bool, dry_run: bool) -> None:
    """Apply it as its field manager; what the server says against it is an `ApiError`.

    With `force`, fields of other managers are taken over, and amounts that are not wanted any more are removed.
    """
    workload = change.workload
    if any(list_removed(change.before[name], after) for name, after in change.after.items()):
        if not force:
            words = "an amount is to go that another manager has set"
            raise FieldManagerConflict(
                Status(message=words, reason="Conflict", code=FieldManagerConflict.code)
            )
        # To apply removes only what nobody else owns; whoever set a limit co-owns it.
        await client.patch(
            workload.resource,
            workload.name,
            build_template_patch(workload, change.after, removing_from=change.before),
            type=PatchType.STRATEGIC,
            namespace=workload.namespace,
            dry_run=dry_run,
        )
    # With its uid, since to apply to what is gone would make it anew.
    named = {"name": workload.name, "namespace": workload.namespace, "uid": workload.uid}
    body = {"metadata": named, **build_template_patch(workload, change.after)}
    await client.apply(workload.resource, body, force=force, dry_run=dry_run)
