"""Virtual machines as Azure has them: small, little used, and now and then not at all idle.

Sizes are after what was published of Azure in 2017; how usage goes over time is that of other clouds' machines, since
no usage of Azure's was at hand. `fitted/azure.json` says it exactly, docs/workloads.md shows the fit.
"""

from __future__ import annotations

from trimtab.lab.workloads.fleet import Fleet, fitted


class Azure(Fleet):
    """Azure's machines."""

    name = "azure"
    settings_type = fitted("azure")
