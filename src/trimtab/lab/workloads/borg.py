"""Tasks as Google's Borg has them: nearly all tiny, and a few that take most of everything.

Sizes are as uneven as was published of jobs on Borg in 2019, cut off at what one machine has; how usage goes over time
is that of containers elsewhere, since no usage of Borg's was at hand. `fitted/borg.json` says it exactly,
docs/workloads.md shows the fit.
"""

from __future__ import annotations

from trimtab.lab.workloads.fleet import Fleet, fitted


class Borg(Fleet):
    """Borg's tasks."""

    name = "borg"
    settings_type = fitted("borg")
