"""The language of the product, and of its commits."""

import pytest

from tools import commits, language


def test_language_has_no_retired_words_fragments_or_odd_openings() -> None:
    assert list(language.check()) == []


@pytest.mark.parametrize(
    ("source", "complaint"),
    [
        ("class Deed: ...", "name Deed"),
        ("def decide(wish: int) -> int: ...", "name wish"),
        ("def count() -> int:\n    told = 1\n    return told", "name told"),
        ("class A:\n    def __init__(self) -> None:\n        self.mandate = 1", "name mandate"),
        ("import json as weather", "name weather"),
        ("x = 1  # as nobody told it", "in a comment"),
        ("def f() -> None:\n    '''Return what was told.'''", "in a docstring"),
        ("def f() -> None:\n    '''of the pod'''", "fragment"),
        ("def install_fallback() -> None:\n    '''Fall back to the rollback.'''", ""),
    ],
)
def test_language_checks_every_name_comment_and_docstring(source: str, complaint: str) -> None:
    found = list(language.check_module(source, "src/trimtab/example.py", language.RetiredWords.load()))
    assert complaint in "".join(found)
    assert bool(found) is bool(complaint)


def test_language_checks_names_of_modules() -> None:
    assert list(language.check_module("", "src/trimtab/mandate.py", language.RetiredWords.load()))


@pytest.mark.parametrize(
    ("subject", "complaint"),
    [
        ("informer: remove the lag gauge when stopped", ""),
        ("operator, web: share one formatter of amounts", ""),
        ("Remove the lag gauge", "area: what changed"),
        ("informer: removed the lag gauge", "imperative"),
        ("informer: remove the lag gauge.", "full stop"),
        (f"informer: {'x' * 72}", "82 characters"),
    ],
)
def test_commit_check_names_the_rule_that_a_subject_breaks(subject: str, complaint: str) -> None:
    found = commits.problem(subject)
    assert complaint in (found or "")
    assert bool(found) is bool(complaint)
