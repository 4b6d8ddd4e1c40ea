"""The check of a running operator by its pods, its Lease and the conditions of policies."""

from __future__ import annotations

from typing import Any

import pytest

from trimtab.cli._common.operator_check import judge_leader, judge_pods, judge_policies

NOW = 1_800_000_000.0
JUST_NOW = "2027-01-15T07:59:50Z"
LONG_AGO = "2027-01-15T04:00:00Z"


def pod(name: str, *, ready: bool = True, ended: str = "", waiting: str = "") -> dict[str, Any]:
    container: dict[str, Any] = {"restartCount": int(bool(ended))}
    if ended:
        container["lastState"] = {"terminated": {"reason": "OOMKilled", "exitCode": 137, "finishedAt": ended}}
    if waiting:
        container["state"] = {"waiting": {"reason": waiting}}
    conditions = [{"type": "Ready", "status": str(ready), "message": "" if ready else "containers not ready"}]
    return {
        "metadata": {"name": name},
        "status": {"conditions": conditions, "containerStatuses": [container]},
    }


@pytest.mark.parametrize(
    ("pods", "state", "found"),
    [
        ([pod("a"), pod("b", ended=LONG_AGO)], "ok", "2 replicas, all ready"),
        ([pod("a"), pod("b", ready=False)], "warning", "b is not ready: containers not ready"),
        ([pod("a", ready=False, waiting="ImagePullBackOff")], "problem", "ImagePullBackOff"),
        ([pod("a", ended=JUST_NOW)], "warning", "a restarted 0.2 minutes ago: OOMKilled, exit code 137"),
    ],
)
def test_doctor_judges_the_operators_pods(pods: list[dict[str, Any]], state: str, found: str) -> None:
    result = judge_pods(pods, now=NOW)
    assert result.state == state
    assert found in result.found


@pytest.mark.parametrize(
    ("spec", "state", "found"),
    [
        ({"holderIdentity": "a", "renewTime": JUST_NOW}, "ok", "a"),
        ({"holderIdentity": "a", "renewTime": LONG_AGO}, "problem", "a renewed the Lease 4 hours ago"),
        ({"holderIdentity": "laptop", "renewTime": JUST_NOW}, "warning", "none of the operator's pods"),
        ({}, "problem", "no replica holds the Lease"),
    ],
)
def test_doctor_judges_the_leader(spec: dict[str, Any], state: str, found: str) -> None:
    result = judge_leader({"spec": spec}, [pod("a")], name="trimtab-operator", now=NOW)
    assert result.state == state
    assert found in result.found


def test_doctor_reports_what_policies_say_does_not_work() -> None:
    def policy(name: str, **conditions: str) -> dict[str, Any]:
        return {
            "metadata": {"namespace": "shop", "name": name},
            "status": {
                "conditions": [
                    {"type": kind, "status": status, "message": f"about {kind}"}
                    for kind, status in conditions.items()
                ]
            },
        }

    well = policy("well", Ready="True", MetricsAvailable="True", ConfigurationRejected="False")
    assert judge_policies([well, {"metadata": {"namespace": "shop", "name": "new"}}]).state == "ok"
    found = judge_policies([well, policy("blind", MetricsAvailable="False")])
    assert (found.state, found.found) == ("warning", "shop/blind: about MetricsAvailable")
    assert judge_policies([]).found == "there are none; without one nothing is changed"
