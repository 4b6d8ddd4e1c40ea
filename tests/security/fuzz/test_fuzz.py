"""A few hundred hostile inputs for each target; `make fuzz` runs many more."""

import pytest

from security.fuzz.engine import Target, fuzz
from security.fuzz.targets import TARGETS

INPUTS = 200


@pytest.mark.parametrize("target", TARGETS.values(), ids=TARGETS.keys())
def test_hostile_input_ends_in_a_declared_error_within_bounds(target: Target) -> None:
    report = fuzz(target, inputs=INPUTS)
    findings = [f"{title}: {found.detail}\n{found.data[:300]!r}" for title, found in report.findings.items()]
    assert not findings, "\n".join(findings)
    assert report.inputs == INPUTS + len(target.seeds)
    assert report.outcomes
