"""Contexts are distinguished by their clusters."""

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from scan.scans import scan_result
from trimtab.cli._common.clusters import ClusterContext, exclude_known, group_by_cluster

reached = st.builds(
    ClusterContext,
    context=st.sampled_from("abcdefgh"),
    server=st.sampled_from(["", "https://one", "https://two"]),
    uid=st.just(""),
    sees_all=st.booleans(),
)


@given(st.lists(reached, unique_by=lambda each: each.context))
def test_by_cluster_names_each_context_once_and_those_that_see_all_first(found: list[ClusterContext]) -> None:
    groups = group_by_cluster(found)
    assert sorted(each.context for group in groups for each in group) == sorted(
        each.context for each in found
    )
    for group in groups:
        assert [each.sees_all for each in group] == sorted((each.sees_all for each in group), reverse=True)
        assert len(group) == 1 or all(each.server for each in group), "who was not asked stands for itself"


def test_by_cluster_knows_a_cluster_by_its_uid_at_any_address() -> None:
    inside = ClusterContext("inside", "https://10.0.0.1", "u1", sees_all=True)
    outside = ClusterContext("outside", "https://api.example", "u1", sees_all=True)
    viewer = ClusterContext("viewer", "https://api.example")
    other = ClusterContext("other", "https://10.0.0.1:1", "u2", sees_all=True)
    assert group_by_cluster([viewer, inside, other, outside]) == [[inside, outside, viewer], [other]]


def test_without_omits_clusters_that_were_scanned_before() -> None:
    found = scan_result()
    assert found.workloads
    again = exclude_known(found, [found])
    assert (again.workloads, again.skipped, again.cost) == ((), (), 0)
    assert exclude_known(found, [replace(found, workloads=(), skipped=())]) == found
