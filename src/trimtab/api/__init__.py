"""The API kinds: models, quantities, defaults, validation, and the CRDs generated from them.

This is the lowest layer: every package may import it, and it imports only `trimtab.errors` and `trimtab.docstrings`.
"""

from trimtab.api.crd import build_crd, render_crd
from trimtab.api.duration import Duration
from trimtab.api.errors import DurationError, InvalidObjectError, QuantityError, format_problems
from trimtab.api.intent import Intent
from trimtab.api.kind import API_VERSION, GROUP, VERSION, Kind
from trimtab.api.kpiprofile import KPIProfile
from trimtab.api.meta import Condition, LabelSelector, ObjectMeta
from trimtab.api.nodemetric import NodeMetric
from trimtab.api.nodeqospolicy import NodeQoSPolicy
from trimtab.api.optimizationpolicy import OptimizationPolicy, OptimizationPolicySpec, PolicyMode
from trimtab.api.quantity import Quantity, parse_memory_bytes, parse_millicores

KINDS: tuple[type[Kind], ...] = (OptimizationPolicy, Intent, KPIProfile, NodeMetric, NodeQoSPolicy)

__all__ = [
    "API_VERSION",
    "GROUP",
    "KINDS",
    "VERSION",
    "Condition",
    "Duration",
    "DurationError",
    "Intent",
    "InvalidObjectError",
    "KPIProfile",
    "Kind",
    "LabelSelector",
    "NodeMetric",
    "NodeQoSPolicy",
    "ObjectMeta",
    "OptimizationPolicy",
    "OptimizationPolicySpec",
    "PolicyMode",
    "Quantity",
    "QuantityError",
    "build_crd",
    "format_problems",
    "parse_memory_bytes",
    "parse_millicores",
    "render_crd",
]
