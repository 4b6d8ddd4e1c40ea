"""All targets, by name."""

from security.fuzz import message_targets, object_targets, query_targets

TARGETS = {
    target.name: target
    for module in (query_targets, object_targets, message_targets)
    for target in module.TARGETS
}
