"""What of a recommendation is a change of the template."""

from survey.surveys import container, surveyed
from trimtab.kube.pods import Resources
from trimtab.survey.patches.change import change_of

MIB = 2**20


def test_what_a_template_leaves_to_a_limit_range_stays_left_to_it_unless_it_is_to_change() -> None:
    filled_in = Resources(100, 200, 64 * MIB, 128 * MIB)
    change = change_of(
        surveyed("web", container(has=filled_in, should=Resources(100, 200, 96 * MIB, 128 * MIB)))
    )
    assert change
    assert change.before == {"app": Resources()}
    assert change.after == {"app": Resources(memory_request=96 * MIB)}


def test_who_has_what_it_should_changes_nothing() -> None:
    same = Resources(100, None, 64 * MIB, None)
    assert change_of(surveyed("web", container(has=same, should=same))) is None
