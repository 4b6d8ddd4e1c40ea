"""All targets, by name."""

from security.fuzz import object_targets, query_targets

TARGETS = {target.name: target for module in (query_targets, object_targets) for target in module.TARGETS}
