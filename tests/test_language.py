"""The language of the product, and of its commits."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


def _run(module: str) -> tuple[int, str]:
    answer = subprocess.run(
        [sys.executable, "-m", module], cwd=ROOT, capture_output=True, text=True, check=False, timeout=120
    )
    return answer.returncode, answer.stdout + answer.stderr


def test_language_has_no_retired_words_fragments_or_odd_openings() -> None:
    status, output = _run("tools.language")
    assert status == 0, output


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
    program = f"import tools.commits as c; print(c.problem({subject!r}))"
    answer = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True, timeout=60
    )
    assert complaint in answer.stdout
    assert bool(answer.stdout.strip()) is bool(complaint)
