"""The public surface: every top package names what others may import, and each name can be loaded."""

import ast
import importlib
import pkgutil
import re
from pathlib import Path

import pytest

import trimtab

ROOT = Path(__file__).parents[1]
PYTHON_BLOCK = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)
MAINTENANCE = {"train_weights.py"}
"""Scripts that maintainers run: this one makes the weights that Trimtab ships."""
COPIED = [
    path
    for path in sorted(
        [*(ROOT / "examples").rglob("*.py"), *(ROOT / "docs").rglob("*.md"), ROOT / "README.md"]
    )
    if path.name not in MAINTENANCE and "research" not in path.parts
]
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


@pytest.mark.parametrize("path", COPIED, ids=lambda path: str(path.relative_to(ROOT)))
def test_examples_import_from_the_public_surface(path: Path) -> None:
    """Users copy these imports; those of inner modules would break with each move of a file."""
    text = path.read_text()
    sources = [text] if path.suffix == ".py" else PYTHON_BLOCK.findall(text)
    imports = [
        node for source in sources for node in ast.walk(ast.parse(source)) if isinstance(node, ast.ImportFrom)
    ]
    inner = [node.module for node in imports if re.match(r"trimtab\.\w+\.", node.module or "")]
    assert not inner, (
        f"{path.name} imports from {', '.join(map(str, inner))}; export the names from the top package"
    )
