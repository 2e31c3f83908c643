"""Tests go through public seams: what the product calls its own (`_name`) is read by none, unless it has no seam on purpose."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PRODUCT = (ROOT / "aileron", ROOT / "sandbox" / "aileron_sandbox", ROOT / "connectors" / "sdk" / "aileron_connector")
TESTS = ROOT / "tests"

# Name → why there is no way to it that anybody but a test could take.
NO_SEAM = {
    "_closed": "a pool that was closed stays so; this test goes on with one",
    "_db": "a ledger is read by its questions; that its connection cannot write is asked of the connection",
    "_take_in": "a conversation's own thread reads; this test reads in its place",
    "_used_at": "the vault's clock is the machine's",
    "_way": "a forge has its way out from where it is made; this test gives the same one to a Hub that no settings name",
}
NAMED_TUPLE = {"_asdict", "_fields", "_make", "_replace"}
"""Public, whatever they look like: collections.namedtuple()."""


def _trees(*folders: Path) -> Iterator[tuple[Path, ast.Module]]:
    for folder in folders:
        for path in sorted(folder.rglob("*.py")):
            if not {"node_modules", "templates", "demo_parts"} & set(path.parts):
                yield path, ast.parse(path.read_text(encoding="utf-8"))


def _is_private(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__") and name not in {"_", *NAMED_TUPLE}


def _is_own(node: ast.expr) -> bool:
    return isinstance(node, ast.Name) and node.id in ("self", "cls")


def _defined(tree: ast.Module) -> Iterator[str]:
    """What this source calls its own: functions, classes, module values, attributes of its objects."""
    for node in ast.walk(tree):
        match node:
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                yield node.name
            case ast.Attribute(ctx=ast.Store()) if _is_own(node.value):
                yield node.attr
            case ast.AnnAssign(target=ast.Name(id=name)):
                yield name
            case ast.Assign():
                yield from (target.id for target in node.targets if isinstance(target, ast.Name))


def _reached(tree: ast.Module) -> Iterator[str]:
    """Names of others that this source reaches for: by an attribute, an import, or as the text of a `setattr`."""
    for node in ast.walk(tree):
        match node:
            case ast.Attribute() if not _is_own(node.value):
                yield node.attr
            case ast.ImportFrom():
                yield from (alias.name for alias in node.names)
            case ast.Call(func=ast.Attribute(attr="setattr"), args=[_, ast.Constant(value=str() as name), *_]):
                yield name


def test_no_test_reaches_for_what_the_product_calls_its_own() -> None:
    """What a test needs is a seam, and has a name without `_`. Not looked at is a name that tests have of their own as well."""
    ours = {name for _, tree in _trees(*PRODUCT) for name in _defined(tree) if _is_private(name)}
    sources = [(path, tree) for path, tree in _trees(TESTS) if "connectors" not in path.relative_to(TESTS).parts[1:]]
    theirs = {name for _, tree in sources for name in _defined(tree)}
    reached = {
        (str(path.relative_to(ROOT)), name)
        for path, tree in sources
        for name in _reached(tree)
        if name in ours and name not in theirs
    }

    assert {name for _, name in reached} & {*NO_SEAM} == {*NO_SEAM}
    assert sorted(where for where in reached if where[1] not in NO_SEAM) == []
