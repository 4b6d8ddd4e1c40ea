"""The real API server forgets its snapshots of lists."""

from kube.test_expired_pages import (  # noqa: F401 - tests and fixtures
    test_list_pages_continue_with_current_objects_after_the_snapshot_expired,
)
