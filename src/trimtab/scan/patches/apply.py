"""Apply a change to a cluster, or validate it with a server-side dry run; the only module here that writes."""

from __future__ import annotations

from trimtab.actuation.resources import build_template_patch, list_removed
from trimtab.kube.errors import FieldManagerConflict, Status
from trimtab.kube.rest.client import Client, PatchType
from trimtab.scan.patches.change import ResourceChange


async def apply_change(client: Client, change: ResourceChange, *, force: bool, dry_run: bool) -> None:
    """Apply a change with server-side apply; raises `ApiError` if the API server rejects it.

    With `force`, take over fields of other managers and remove amounts that are no longer recommended.
    """
    workload = change.workload
    if any(list_removed(change.before[name], after) for name, after in change.after.items()):
        if not force:
            message = "another field manager set an amount that is to be removed"
            raise FieldManagerConflict(
                Status(message=message, reason="Conflict", code=FieldManagerConflict.code)
            )
        # Server-side apply only removes fields without another owner, and whoever set a limit co-owns it.
        await client.patch(
            workload.resource,
            workload.name,
            build_template_patch(workload, change.after, removing_from=change.before),
            type=PatchType.STRATEGIC,
            namespace=workload.namespace,
            dry_run=dry_run,
        )
    # The uid prevents the apply from creating the workload again if it was deleted.
    named = {"name": workload.name, "namespace": workload.namespace, "uid": workload.uid}
    body = {"metadata": named, **build_template_patch(workload, change.after)}
    await client.apply(workload.resource, body, force=force, dry_run=dry_run)
