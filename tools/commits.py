"""Check the subjects of the commits made since this check exists: `area: what changed`, at most 72 characters.

Where there is no history, as in an archive of the sources or a shallow clone, there is nothing to check.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__)
MAX_LENGTH = 72
SUBJECT = re.compile(r"[a-z0-9][a-z0-9_./, -]*: \S.*[^.]")
NOT_IMPERATIVE = re.compile(
    r": (added|adds|fixed|fixes|changed|changes|removed|removes|updated|updates|renamed|renames)\b"
)


def problem(subject: str) -> str:
    """Return what is wrong with a subject, or an empty string."""
    if subject.startswith(("Merge ", "Revert ")):
        return ""
    if len(subject) > MAX_LENGTH:
        return f"has {len(subject)} characters; at most {MAX_LENGTH}"
    if not SUBJECT.fullmatch(subject):
        return "is not of the form `area: what changed`, without a full stop"
    if NOT_IMPERATIVE.search(subject):
        return "is not imperative: write `add`, not `added` or `adds`"
    return ""


def subjects() -> list[str]:
    """Return the subjects of all commits after the one that added this file."""
    first = _git("log", "--diff-filter=A", "--format=%H", "--", str(HERE)).split()
    return _git("log", "--no-merges", "--format=%s", f"{first[-1]}..HEAD").splitlines() if first else []


def _git(*arguments: str) -> str:
    try:
        answer = subprocess.run(  # noqa: S603 - fixed arguments
            ["git", *arguments],  # noqa: S607 - git of the PATH
            cwd=HERE.parent,
            capture_output=True,
            text=True,
            check=False,
        )
    except OSError:
        return ""
    return answer.stdout if answer.returncode == 0 else ""


def main() -> int:
    """Print the subjects that break a rule; the exit status is 1 if there are any."""
    found = [f"commit {subject!r} {what}" for subject in subjects() if (what := problem(subject))]
    print("\n".join(found) if found else "commits: every subject is in order")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
