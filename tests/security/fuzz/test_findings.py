"""Inputs that the fuzzers found, each of which crashed, hid other objects or gave an unclear message."""

from __future__ import annotations

import msgspec
import pytest

from security.fuzz.engine import check_input
from security.fuzz.object_targets import PROJECTIONS
from security.fuzz.targets import TARGETS
from trimtab.api import OptimizationPolicy
from trimtab.api.errors import InvalidObjectError

DEEP = b"[" * 5000 + b"]" * 5000
DEEP_SETTINGS = b'{"kind":"OptimizationPolicy","spec":{"strategy":{"settings":{"a":%s}}}}' % DEEP
DEEPER_THAN_PYTHON = b'{"spec":{"strategy":{"settings":%s1%s}}}' % (b'{"a":' * 900, b"}" * 900)


def _review(stated: bytes) -> bytes:
    return b'{"request":{"uid":"1","operation":"CREATE","object":%s}}' % stated


def _name_container(name: str) -> str:
    """Return the annotation of a change, whose container has this name."""
    sizes = {name: {"cpu_request": 100}}
    change = {"id": "c", "started": 1, "way": "InPlace", "phase": "Canary", "since": 1, "health": {"pods": 2}}
    mark = {**change, "before": sizes, "after": {"web": {"cpu_request": 400}}, "template": {}}
    return msgspec.json.encode({"version": 1, "uid": "uid-web", "mark": mark}).decode()


@pytest.mark.parametrize(
    ("target", "data"),
    [
        *((f"cache-{name}", b'{"metadata":{"name":"a"},"unknown":%s}' % DEEP) for name in PROJECTIONS),
        ("cache-optimizationpolicies", DEEP_SETTINGS),
        ("cache-optimizationpolicies", DEEPER_THAN_PYTHON),
        ("cache-rollouts", b'{"spec":{"template":{"a":%snull%s}}}' % (b"[" * 500, b"]" * 500)),
        ("webhook-validate", _review(DEEP_SETTINGS)),
        ("webhook-mutate", _review(DEEP_SETTINGS)),
        ("webhook-validate", _review(b'{"metadata":[1],"spec":{"mode":"no"}}')),
        ("webhook-mutate", b'{"request":{"uid":"1","operation":"UPDATE","object":{"metadata":[1]}}}'),
        ("annotations", b'{"trimtab.io/hold":"{\\"x\\":%s}"}' % DEEP),
        ("annotations", b'{"trimtab.io/change":"{\\"x\\":%s}"}' % DEEP),
        ("annotations", b'{"trimtab.io/options":"{\\"x\\":%s}"}' % DEEP),
        ("annotations", b'{"trimtab.io/hold":"%s"}' % (b"because " * 5000)),
        ("annotations", b'{"trimtab.io/hold":"a\\nb\\u001b[2J"}'),
        (
            "annotations",
            b'{"trimtab.io/change":"{\\"version\\":1,\\"uid\\":\\"uid-web\\",\\"mark\\":{\\"way\\":\\"%s\\"}}"}'
            % (b"x" * 9000),
        ),
        (
            "annotations",
            msgspec.json.encode({"trimtab.io/hold": "stop", "trimtab.io/change": _name_container("\0")}),
        ),
        (
            "annotations",
            b'{"trimtab.io/hold":"{\\"who\\":\\"a\\",\\"why\\":\\"b\\",\\"sizes\\":{\\"web\\":{\\"memory_limit\\":%d}}}"}'
            % (1 << 80),
        ),
        ("manifests", b"spec: {updateStrategy: {windows: %s}}" % DEEP[4000:6000]),
        ("manifests", DEEPER_THAN_PYTHON),
        ("manifests", b'{"spec":{"containers":[%s]}}' % b",".join([b'{"nme":1}'] * 60)),
        ("manifests", b'{"spec":{"reconciliationInterval":"1((\\n"}}'),
        ("manifests", b'{"spec":{"containers":[{"name":"sidecar","controlledResources":[]}]}}'),
        ("quantities", b"1\x1b[2J"),
        ("quantities", b"x" * 50_000),
        ("kubeconfigs", b"current-context: %s" % (b"x" * 12_000)),
        (
            "kubeconfigs",
            b"contexts: [%s]" % b",".join(b"{name: '%d%s'}" % (n, b"x" * 200) for n in range(100)),
        ),
        ("kubeconfigs", b"[" * 65_536),
        ("manifests", b"[" * 65_536),
        ("durations", b"1h\n---\n"),
        ("promql", b'x{a=~"%s"}' % (b"$+(+" * 1000)),
        ("scoped-promql", b"h{\xe2\x80\xae"),
        ("promql-answers", b'{"status":"x","error":"\\u0000%s"}' % (b"x" * 9000)),
        ("promql-answers", b'{"status":"success","data":{"resultType":"matr\x7fx","result":[]}}'),
        # A frame of 2**63 - 1 bytes ended the process: one that is killed shows as an error of the whole run.
        ("remote-read", b"\xff" + b"\xff" * 8 + b"\x7f" + b"*\xfc/\xfb\x89up\xff\xff\xff\xff" * 300),
        ("remote-read", b"\x0a" + b"\xff" * 8 + b"\x7f" + b"*\xfc/\xfb\x89up\xff\xff\xff\xff" * 300),
    ],
)
def test_input_that_the_fuzzers_found_is_handled(target: str, data: bytes) -> None:
    report = check_input(TARGETS[target], data)
    assert not report.findings, report.findings


def test_settings_of_a_strategy_are_bounded() -> None:
    for settings, message in (
        (msgspec.json.decode(b'{"a":' * 9 + b"{}" + b"}" * 9), "nests more than 8 levels"),
        ({str(number): number for number in range(300)}, "more than 256 values"),
        ({"weights": [{"a": number} for number in range(200)]}, "more than 256 values"),
    ):
        with pytest.raises(InvalidObjectError, match=rf"spec\.strategy\.settings: .*{message}"):
            OptimizationPolicy.read(
                {"kind": "OptimizationPolicy", "spec": {"strategy": {"settings": settings}}}
            )


def test_object_with_many_problems_reports_the_first_ones() -> None:
    spec = {"containers": [{"name": "x", f"unknown{number}": 1} for number in range(60)]}
    with pytest.raises(InvalidObjectError) as raised:
        OptimizationPolicy.read({"kind": "OptimizationPolicy", "spec": spec})
    assert len(raised.value.problems) == 16 + 1
    assert raised.value.problems[-1] == "there are 44 more problems"
