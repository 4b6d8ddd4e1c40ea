"""Requests through faults before the real API server."""

from kube.rest.test_retry_faults import (  # noqa: F401 - tests and fixtures
    test_retry_does_not_repeat_a_create_that_may_have_succeeded,
    test_retry_repeats_an_idempotent_change_whose_response_was_lost,
    unlucky,
)
