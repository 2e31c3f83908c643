"""What a module offers is written down: `__all__` is there, and every name in it exists."""

from __future__ import annotations

import ast
import importlib
import re
from pathlib import Path

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


def problem_with(module: str, tree: ast.Module) -> str | None:
    """What is wrong with the list of what a module offers, and with what it says of itself."""
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


def test_what_is_public_is_listed_exists_and_says_what_it_is() -> None:
    """A module that makes public names says which it offers, each once, and has them; and it has a docstring."""
    found = [problem_with(module, ast.parse(path.read_text(encoding="utf-8"))) for module, path in modules()]

    assert len(found) > 350
    assert [problem for problem in found if problem] == []


WORD = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])|[0-9]+")


def retired() -> set[str]:
    """The words that the glossary has another for."""
    text = (ROOT / "docs" / "reference" / "glossary.md").read_text(encoding="utf-8")
    section = text.partition("### In names")[2].partition("### In sentences")[0]
    rows = re.findall(r"^\| ([a-z]+) \| [^|]+ \|$", section, re.MULTILINE)
    return {*rows} - {"word"}


def retired_names(module: str, tree: ast.Module) -> list[str]:
    """Of a module and its public types, those that are called by a word that went."""
    types = [node.name for node in tree.body if isinstance(node, ast.ClassDef) and not node.name.startswith("_")]
    return [name for name in (*module.split("."), *types) if retired() & {word.lower() for word in WORD.findall(name)}]


def test_no_module_or_type_is_called_by_a_word_that_went() -> None:
    """The glossary is the one list of terms, and says what each is called now."""
    found = [(module, retired_names(module, ast.parse(path.read_text(encoding="utf-8")))) for module, path in modules()]

    assert len(retired()) > 10
    assert retired_names("aileron.web.desk", ast.parse("class GenuineOne: ...")) == ["desk", "GenuineOne"]
    assert retired_names("aileron.daemon.notify.desktop", ast.parse("class Desktop: ...")) == []
    assert [(module, names) for module, names in found if names] == []
