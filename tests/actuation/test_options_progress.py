"""A rollout of options is reverted when it stands still, and not because it takes long."""

from hypothesis import given
from hypothesis import strategies as st

from actuation.builders import NOW, workload
from trimtab.actuation.options import OPTIONS, PATIENCE, Options, Phase, changed, followed_up


@given(replicas=st.integers(2, 300), seconds=st.integers(5, int(PATIENCE) - 60))
def test_options_rollout_that_makes_progress_is_not_reverted(replicas: int, seconds: int) -> None:
    mark = changed(
        workload(replicas=replicas), Options("guaranteed"), had=Options(), container="web", cores=1.0, now=NOW
    )
    now = NOW
    for updated in range(1, replicas):
        now += seconds
        seen = workload(
            replicas=replicas,
            rolling=True,
            updated=updated,
            ready=replicas,
            annotations={OPTIONS: mark.written()},
        )
        mark = followed_up(seen, now=now) or mark
        assert mark.phase is Phase.ROLLING
    # And once it stands still, it is.
    stuck = workload(
        replicas=replicas,
        rolling=True,
        updated=replicas - 1,
        ready=replicas,
        annotations={OPTIONS: mark.written()},
    )
    mark = followed_up(stuck, now=now + 61) or mark
    stuck = workload(
        replicas=replicas,
        rolling=True,
        updated=replicas - 1,
        ready=replicas,
        annotations={OPTIONS: mark.written()},
    )
    after = followed_up(stuck, now=now + 62 + PATIENCE)
    assert after is not None
    assert after.phase is Phase.REVERTED
