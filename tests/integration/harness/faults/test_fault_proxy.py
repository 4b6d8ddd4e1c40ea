"""The fault proxy before the real API server."""

from harness.faults.test_fault_proxy import (  # noqa: F401 - tests and fixtures
    client,
    maps,
    test_fault_proxy_cuts_a_watch_between_events,
    test_fault_proxy_loses_the_response_after_the_effect,
    test_fault_proxy_passes_requests_unchanged,
    test_writes_pass_with_their_body,
)
