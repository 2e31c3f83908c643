"""What a module offers is written down: `__all__` is there, and every name in it exists."""

from __future__ import annotations

import ast
import importlib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
TABLES = {"aileron_sandbox.kernel"}
"""Numbers and calls of the kernel's headers, each public and named once: a list of them would be the module again."""
PACKAGES = {
    "aileron": ROOT / "aileron",
    "aileron_sandbox": ROOT / "sandbox" / "aileron_sandbox",
    "aileron_connector": ROOT / "connectors" / "sdk" / "aileron_connector",
}


def modules() -> list[tuple[str, Path]]:
    """Every public module of ours; what the demo installs is not imported by anyone."""
    found = []
    for package, folder in PACKAGES.items():
        for path in sorted(folder.rglob("*.py")):
            parts = [package, *path.relative_to(folder).with_suffix("").parts]
            if not {"demo_parts", "templates"} & set(parts) and not any(
                part[0] == "_" and part[:2] != "__" for part in parts
            ):
                found.append((".".join(parts).removesuffix(".__init__"), path))
    return found


def defined(tree: ast.Module) -> set[str]:
    """The names a module's own top level makes, imports aside."""
    names: set[str] = set()
    for node in tree.body:
        match node:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                names.add(name)
            case ast.AnnAssign(target=ast.Name(id=name)):
                names.add(name)
            case ast.Assign(targets=targets):
                names |= {target.id for target in targets if isinstance(target, ast.Name)}
    return {name for name in names if not name.startswith("_")}


@pytest.mark.parametrize(("module", "path"), modules(), ids=lambda value: value if isinstance(value, str) else "")
def test_what_is_public_is_listed_and_exists(module: str, path: Path) -> None:
    """A module that makes public names says which it offers, each once, and has them."""
    imported = importlib.import_module(module)
    offered = getattr(imported, "__all__", None)
    if offered is None:
        public = defined(ast.parse(path.read_text(encoding="utf-8")))
        assert module in TABLES or public == set(), "no __all__"
        return

    assert [name for name in offered if not hasattr(imported, name)] == []
    assert len(offered) == len(set(offered))


@pytest.mark.parametrize(("module", "path"), modules(), ids=lambda value: value if isinstance(value, str) else "")
def test_every_public_module_says_what_it_is(module: str, path: Path) -> None:
    """A module without a docstring has no home in the house."""
    assert ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))), f"{module} has no docstring"
