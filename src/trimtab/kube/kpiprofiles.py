"""KPIProfiles, folded to who they are and how they measure."""

from __future__ import annotations

from trimtab.api import KPIProfile as KPIProfileKind
from trimtab.api.kpiprofile import KPIProfileSpec
from trimtab.kube.declared import Declared, declared
from trimtab.kube.records import Folding, Shape

ProfileKey = tuple[str, str]
"""The namespace and the name of a profile."""


class KPIProfile(Declared[KPIProfileSpec], frozen=True, eq=False):
    """One KPIProfile."""


def profile_key(measured_by: str, namespace: str) -> ProfileKey:
    """Which profile an objective of this namespace means."""
    elsewhere, slash, name = measured_by.rpartition("/")
    return (elsewhere if slash else namespace), name


def kpi_profiles(folding: Folding | None = None) -> Shape[KPIProfile]:
    """Read KPIProfiles as records."""
    return declared(KPIProfileKind, KPIProfile, folding)
