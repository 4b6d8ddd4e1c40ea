"""Build the newest minor versions of Prometheus, and run tests against each: `python -m harness.prometheus_versions`.

The tests of usage that are otherwise answered by recordings ask the real server, and a real VictoriaMetrics.

The tests elsewhere use the Prometheus of the distribution. These are built from their modules, as Go's checksum database
knows them, without web pages and service discovery.
"""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

from harness.build import cache, locked, say
from harness.recordings import LIVE, RECORD

VERSIONS = {"3.15": "v0.315.0", "3.14": "v0.314.0", "3.13": "v0.313.0"}
"""The versions of the module by the release; a release 3.x has the module version 0.3xx."""
MODULE = "github.com/prometheus/prometheus"
TESTS = (
    "tests/usage/prometheus",
    "tests/integration/usage/prometheus/test_late_server.py",
    "tests/integration/recommender/test_prometheus.py",
)


def built(version: str) -> Path:
    """The folder with `prometheus` and `promtool` of a version, compiled first where they are not there yet."""
    folder = cache() / f"prometheus-{version}"
    with locked(f"prometheus-{version}"):
        if not folder.is_dir():
            say(f"building prometheus {version}, about 6 min the first time")
            with tempfile.TemporaryDirectory(dir=cache(), prefix=".prometheus-") as scratch:
                made = Path(scratch) / "bin"
                made.mkdir()
                programs = [f"{MODULE}/cmd/{name}" for name in ("prometheus", "promtool")]
                for command in (
                    ["go", "mod", "init", "prometheus.example/build"],
                    ["go", "get", *(f"{program}@{version}" for program in programs)],
                    [
                        "go",
                        "build",
                        "-trimpath",
                        "-tags",
                        "remove_all_sd",
                        "-ldflags",
                        "-s -w",
                        "-o",
                        f"{made}/",
                        *programs,
                    ],
                ):
                    subprocess.run(command, cwd=scratch, env=os.environ | {"CGO_ENABLED": "0"}, check=True)
                made.rename(folder)
    return folder


def main(*releases: str) -> int:
    """Run the tests against these releases, by default all; return the number of those that failed."""
    failed = []
    for release in releases or VERSIONS:
        folder = built(VERSIONS[release])
        say(f"Prometheus {release}")
        path = f"{folder}{os.pathsep}{os.environ['PATH']}"
        environment = os.environ | {"PATH": path, RECORD: LIVE}
        done = subprocess.run(
            [sys.executable, "-m", "pytest", "-q", "--numprocesses", "0", *TESTS],
            env=environment,
            check=False,
        )
        failed += [release] * (done.returncode != 0)
    say(f"failed with Prometheus {', '.join(failed)}" if failed else "all passed")
    return len(failed)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
