"""What the process says when it starts on a cluster that lacks what it needs."""

from trimtab.operator.config import OperatorConfig
from trimtab.operator.process import lacking

GONE = {"optimizationpolicies.trimtab.io": "the server does not have it"}


def test_a_cluster_that_was_not_made_ready_is_told_of_with_the_fix() -> None:
    found = dict(lacking(GONE, {"default"}, OperatorConfig()))
    assert found["optimizationpolicies.trimtab.io"].startswith("trimtab crds | kubectl apply")
    assert found["namespace trimtab-system"].startswith("kubectl create namespace trimtab-system")


def test_one_that_was_is_not() -> None:
    assert not list(lacking({}, {"default", "trimtab-system"}, OperatorConfig()))


def test_without_an_election_no_namespace_is_needed() -> None:
    alone = OperatorConfig.model_validate({"leaderElection": {"enabled": False}})
    assert not list(lacking({}, {"default"}, alone))
