"""A process whose image ships the library of the kernels, as a pod has it, beside one where numba compiles them."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

COMPUTE = """
import hashlib, sys
import numpy as np
from trimtab.intents.effects.inputs import InputBatch, ModelInputs
from trimtab.intents.effects.latency_model import LatencyModel
from trimtab.intents.effects.samples import EffectSample
from trimtab.operator.kernels import SHIPPED_STRATEGIES
from trimtab.sizing.strategy import strategy
from trimtab.usage.prometheus.remote_read.framing import index_frames
from trimtab.usage.prometheus.response import read_pairs

def sizes(name):
    draws, learning = np.random.default_rng(7), strategy(name, 23)
    for step in range(400):
        cores = draws.gamma(2.0, 0.2, 23) * (1 + step % 24 / 12)
        cores[step % 23] = np.nan
        learning.observe(300.0 * step, cores, draws.gamma(3.0, 2.0**28, 23))
        if step % 90 == 89:
            learning.observe_oom(300.0 * step, np.array([step % 23]), np.array([2.0**31]))
            found = learning.recommend(300.0 * step)
            for each in (found.cpu, found.memory):
                yield each.lower.tobytes() + each.target.tobytes() + each.upper.tobytes()

def effects():
    places = [ModelInputs(pods, 0.5, 2.0**29, 10.0, "", "", ()) for pods in (2.0, 3.0, 5.0)]
    model = LatencyModel.from_prior(EffectSample(0.0, places[0], 0.1))
    yield repr(model.predict_changes(InputBatch(np.array([each[:4] for each in places]), tuple(places)), 0.1)).encode()
    yield repr(model.predict_latency(places)).encode()
    pairs = np.empty(4)
    assert read_pairs(np.frombuffer(b'[[1700000000,"0.25"],[1700000060,"1e-3"]]', np.uint8), pairs)
    yield pairs.tobytes()
    yield repr(index_frames(np.frombuffer(b"", np.uint8))).encode()

for name in SHIPPED_STRATEGIES:
    print(name, hashlib.sha256(b"".join(sizes(name))).hexdigest())
print("effects", hashlib.sha256(b"".join(effects())).hexdigest())
print("numba" in sys.modules, file=sys.stderr)
"""


def run(code: str, *arguments: str, library: Path | None = None) -> tuple[str, str]:
    environment = {name: value for name, value in os.environ.items() if name != "KERNEL_LIBRARY_DIR"}
    if library is not None:
        environment["KERNEL_LIBRARY_DIR"] = str(library)
    command = [sys.executable, "-c", code, *arguments]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    return done.stdout, done.stderr


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("kernels")
    run(
        "from trimtab.operator.kernels import build; import pathlib, sys; build(pathlib.Path(sys.argv[1]))",
        str(folder),
    )
    return folder


def test_library_computes_the_same_bits_without_numba(library: Path) -> None:
    compiled, with_numba = run(COMPUTE)
    shipped, without_numba = run(COMPUTE, library=library)
    assert shipped == compiled
    assert (with_numba.strip(), without_numba.strip()) == ("True", "False")


def test_operator_and_scan_start_without_large_libraries(library: Path) -> None:
    started = (
        "import trimtab.cli.scan, trimtab.cli.operator, trimtab.operator.app, sys\n"
        "from trimtab.operator.kernels import load_kernels\n"
        "load_kernels()\n"
        "print([name for name in ('numba', 'llvmlite', 'scipy', 'alembic', 'cryptography', 'grpc', 'promql_parser') if name in sys.modules])"
    )
    assert run(started, library=library)[0].strip() == "[]"


OTHER_TYPES = """
import sys
import numpy as np
from trimtab.sizing.stats.histogram import Histogram, build_exponential_buckets, find_buckets
buckets = build_exponential_buckets(first=0.01, growth=0.05, most=1000.0, units=1000.0)
rows = Histogram(3, buckets, 3600.0)
rows.replace(np.arange(3), np.arange(3), np.full(3, 65535, np.uint16), find_buckets(buckets, np.ones(3), 1e9))
rows.add(0.0, find_buckets(buckets, np.arange(6.0)[::2], 1e9))
print(rows.percentiles((0.5, 0.9, 0.95)).tolist(), "numba" in sys.modules)
"""


def test_kernel_is_compiled_for_types_that_the_library_does_not_have(library: Path) -> None:
    compiled = run(OTHER_TYPES)[0].splitlines()[-1]
    shipped = run(OTHER_TYPES, library=library)[0].splitlines()[-1]
    assert shipped == compiled
    assert shipped.endswith("True")


@pytest.mark.parametrize("damage", ["cut off", "other sources", "no list"])
def test_kernels_are_compiled_where_the_library_does_not_fit(
    library: Path, tmp_path: Path, damage: str
) -> None:
    binary, listed = (library / name for name in ("kernels.so", "kernels.json"))
    (tmp_path / "kernels.so").write_bytes(binary.read_bytes()[: 40 if damage == "cut off" else None])
    if damage != "no list":
        text = listed.read_text()
        (tmp_path / "kernels.json").write_text(
            text.replace('sizing/stats/histogram.py": "', 'sizing/stats/histogram.py": "0')
            if damage == "other sources"
            else text
        )
    code = "from trimtab.usage.prometheus.response import read_pairs; print(type(read_pairs).__module__)"
    assert "numba" in run(code, library=tmp_path)[0].splitlines()[-1]
    assert run(code, library=library)[0].strip() == "trimtab.kernel"
