"""Tests use public names: none reads a private name (`_name`) of the product, except the few in NO_SEAM."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple

ROOT = Path(__file__).resolve().parents[2]
PRODUCT = (ROOT / "aileron", ROOT / "sandbox" / "aileron_sandbox", ROOT / "connectors" / "sdk" / "aileron_connector")
TESTS = ROOT / "tests"

# Name → why the product has no public way to it, which only a test could use.
NO_SEAM = {
    "_closed": "a pool that was closed stays so; this test goes on with one",
    "_db": "a ledger is read by its questions; that its connection cannot write is asked of the connection",
    "_take_in": "a conversation's own thread reads; this test reads in its place",
    "_used_at": "the vault's clock is the machine's",
    "_way": "a forge has its way out from where it is made; this test gives the same one to a Hub that no settings name",
}
NAMED_TUPLE = {"_asdict", "_fields", "_make", "_replace"}
"""Names that are public although they begin with `_`: collections.namedtuple()."""


class Names(NamedTuple):
    """Names that a source file defines, and names of other objects that it uses."""

    path: Path
    defined: set[str]
    reached: set[str]


def _names(*folders: Path) -> Iterator[Names]:
    for folder in folders:
        for path in sorted(folder.rglob("*.py")):
            if not {"node_modules", "templates", "demo_parts"} & set(path.parts):
                yield _names_of(path)


def _names_of(path: Path) -> Names:
    """Return a file's names after a single walk of its tree: 2,000 files have four million nodes."""
    found = Names(path, set(), set())
    waiting: list[ast.AST] = [ast.parse(path.read_text(encoding="utf-8"))]
    while waiting:
        node = waiting.pop()
        if (look := _LOOKS.get(type(node))) is not None:
            look(node, found)
        waiting.extend(ast.iter_child_nodes(node))
    return found


def _is_private(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__") and name not in {"_", *NAMED_TUPLE}


def _is_own(node: ast.expr) -> bool:
    return isinstance(node, ast.Name) and node.id in ("self", "cls")


def _look_at_definition(node: Any, found: Names) -> None:
    found.defined.add(node.name)


def _look_at_attribute(node: Any, found: Names) -> None:
    if not _is_own(node.value):
        found.reached.add(node.attr)
    elif isinstance(node.ctx, ast.Store):
        found.defined.add(node.attr)


def _look_at_assignment(node: Any, found: Names) -> None:
    targets = [node.target] if isinstance(node, ast.AnnAssign) else node.targets
    found.defined.update(target.id for target in targets if isinstance(target, ast.Name))


def _look_at_import(node: Any, found: Names) -> None:
    found.reached.update(alias.name for alias in node.names)


def _look_at_call(node: Any, found: Names) -> None:
    """Record the name in a `setattr` call as used."""
    match node:
        case ast.Call(func=ast.Attribute(attr="setattr"), args=[_, ast.Constant(value=str() as name), *_]):
            found.reached.add(name)


_LOOKS: Final[dict[type[ast.AST], Callable[[Any, Names], None]]] = {
    ast.FunctionDef: _look_at_definition,
    ast.AsyncFunctionDef: _look_at_definition,
    ast.ClassDef: _look_at_definition,
    ast.Attribute: _look_at_attribute,
    ast.Assign: _look_at_assignment,
    ast.AnnAssign: _look_at_assignment,
    ast.ImportFrom: _look_at_import,
    ast.Call: _look_at_call,
}


def test_no_test_uses_a_private_name_of_the_product() -> None:
    """A test uses a public name. A private name that tests define themselves as well is not checked."""
    ours = {name for source in _names(*PRODUCT) for name in source.defined if _is_private(name)}
    sources = [source for source in _names(TESTS) if "connectors" not in source.path.relative_to(TESTS).parts[1:]]
    theirs = {name for source in sources for name in source.defined}
    reached = {
        (str(source.path.relative_to(ROOT)), name)
        for source in sources
        for name in source.reached
        if name in ours and name not in theirs
    }

    assert {name for _, name in reached} & {*NO_SEAM} == {*NO_SEAM}
    assert sorted(where for where in reached if where[1] not in NO_SEAM) == []
