"""The public surface: every top package names what others may import, and each name can be loaded."""

import importlib
import pkgutil
from pathlib import Path

import pytest

import trimtab

PACKAGES = [found.name for found in pkgutil.iter_modules(trimtab.__path__) if found.ispkg]


@pytest.mark.parametrize("package", PACKAGES)
def test_package_exports_names_that_can_be_loaded_and_hide_no_module(package: str) -> None:
    module = importlib.import_module(f"trimtab.{package}")
    assert module.__all__, f"trimtab.{package} exports nothing"
    assert len(set(module.__all__)) == len(module.__all__)
    folder = Path(module.__path__[0])
    for name in module.__all__:
        assert not name.startswith("_")
        # A module of the same name would hide what is loaded when first used.
        if hasattr(module, "__getattr__"):
            assert not (folder / f"{name}.py").exists(), f"trimtab.{package}.{name} is a module too"
            assert not (folder / name).is_dir(), f"trimtab.{package}.{name} is a package too"
        assert getattr(module, name) is not None


def test_package_without_the_name_says_so() -> None:
    with pytest.raises(AttributeError, match=r"'trimtab\.kube' has no attribute 'Wire'"):
        _ = importlib.import_module("trimtab.kube").Wire
