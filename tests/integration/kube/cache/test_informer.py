"""An informer on the real API server: what the fake one must do alike."""

from kube.cache.test_informer import (  # noqa: F401 - tests and fixtures
    test_informer_accepts_an_empty_list,
    test_informer_lists_again_after_the_server_went_back_in_time,
    test_informer_lists_and_watches,
    test_informer_outlasts_an_absent_server_that_forgot_old_versions,
    test_informer_projects_pods_to_needed_fields,
    test_informer_reads_pages_of_a_server_without_streamed_lists,
    test_informer_requests_only_metadata_if_possible,
    test_informer_resumes_a_cut_watch_without_a_list,
)
from kube.cache.test_verifier import (  # noqa: F401 - tests
    test_informer_finds_no_drift_while_objects_come_and_go,
    test_verifier_compares_all_pages_in_turn,
)
