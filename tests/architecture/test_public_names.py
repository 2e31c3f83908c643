"""Public names of modules: each module has an `__all__`, and every name in it exists."""

from __future__ import annotations

import ast
import importlib
import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
TABLES = {"aileron_sandbox.kernel"}
"""Modules without `__all__`: they hold numbers and calls of the kernel's headers, and a list would repeat the module."""
PACKAGES = {
    "aileron": ROOT / "aileron",
    "aileron_sandbox": ROOT / "sandbox" / "aileron_sandbox",
    "aileron_connector": ROOT / "connectors" / "sdk" / "aileron_connector",
}


def modules() -> list[tuple[str, Path]]:
    """Return our public modules. Files that the demo installs are left out, since no module imports them."""
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
    """Return the public names that a module's top level defines, without its imports."""
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


def problem_with(module: str, tree: ast.Module) -> str | None:
    """Return what is wrong with a module's `__all__` or docstring, or None."""
    imported = importlib.import_module(module)
    if not ast.get_docstring(tree):
        return f"{module} has no docstring"
    offered = getattr(imported, "__all__", None)
    if offered is None:
        return f"{module} has no __all__" if module not in TABLES and defined(tree) else None
    missing = [name for name in offered if not hasattr(imported, name)]
    if missing or len(offered) != len(set(offered)):
        return f"{module}: {missing or 'a name stands twice'}"
    return None


def test_every_public_module_has_a_docstring_and_a_correct_all_list() -> None:
    """A module that defines public names lists in `__all__` those that it offers, each once, and each exists."""
    found = [problem_with(module, ast.parse(path.read_text(encoding="utf-8"))) for module, path in modules()]

    assert len(found) > 350
    assert [problem for problem in found if problem] == []


def offered_by_modules() -> dict[str, set[str]]:
    """Return the names in the `__all__` of each module that has one."""
    return {
        name: set(offered)
        for name, _ in modules()
        if (offered := getattr(importlib.import_module(name), "__all__", None))
    }


def used_names(tree: ast.Module, offered: dict[str, set[str]]) -> set[tuple[str, str]]:
    """Return each module of ours with the public names of it that this tree imports, or takes from the imported module."""
    used: set[tuple[str, str]] = set()
    imported: dict[str, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module:
            for name in node.names:
                if (module := f"{node.module}.{name.name}") in offered:
                    imported[name.asname or name.name] = module
                elif node.module in offered:
                    used.add((node.module, name.name))
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in imported:
            used.add((imported[node.value.id], node.attr))
    return {(module, name) for module, name in used if not name.startswith("_") and f"{module}.{name}" not in offered}


def test_a_name_that_another_module_uses_is_in_the_all_list() -> None:
    """A reader of `__all__` sees what a change can break. Names for the type checker alone do not exist at run time."""
    offered = offered_by_modules()
    used = {
        found for _, path in modules() for found in used_names(ast.parse(path.read_text(encoding="utf-8")), offered)
    }

    assert len(used) > 2000
    assert [
        (module, name)
        for module, name in sorted(used)
        if name not in offered[module] and hasattr(importlib.import_module(module), name)
    ] == []


WORD = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])|[0-9]+")


def retired() -> set[str]:
    """Return the words that the glossary replaces with others."""
    text = (ROOT / "docs" / "reference" / "glossary.md").read_text(encoding="utf-8")
    section = text.partition("### In names")[2].partition("### In sentences")[0]
    rows = re.findall(r"^\| ([a-z]+) \| [^|]+ \|$", section, re.MULTILINE)
    return {*rows} - {"word"}


def retired_names(module: str, tree: ast.Module) -> list[str]:
    """Return the names of a module's path and of its public types that contain a retired word."""
    types = [node.name for node in tree.body if isinstance(node, ast.ClassDef) and not node.name.startswith("_")]
    return [name for name in (*module.split("."), *types) if retired() & {word.lower() for word in WORD.findall(name)}]


def test_no_module_or_type_is_named_with_a_retired_word() -> None:
    """The glossary is the only list of terms, and gives each retired word's replacement. Part of a word does not count."""
    found = [(module, retired_names(module, ast.parse(path.read_text(encoding="utf-8")))) for module, path in modules()]

    assert len(retired()) > 10
    assert retired_names("aileron.web.desk", ast.parse("class GenuineOne: ...")) == ["desk", "GenuineOne"]
    assert retired_names("aileron.daemon.notify.desktop", ast.parse("class Desktop: ...")) == []
    assert [(module, names) for module, names in found if names] == []
