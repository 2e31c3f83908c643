"""Check of whether an input of a group of pinned third parties changed, and a stamp for what passed.

A group is a folder of tests of programs that others publish, in pinned versions, which change when a pin moves. A run of it
depends on its inputs:

- its folder, with the pins;
- all modules of tests that those import, the modules of the product that any of them imports, and the files and folders that
  any of them names by a path from its own (`Path(__file__).parent / "pins"`);
- the rooms of the product that it is about (tests/pinned/inputs.toml);
- pyproject.toml, the version of Python, and whether it runs as root.

`--stamp GROUP`, an option of pytest, writes the SHA-256 of them into tests/pinned/passed when all tests of the group passed: none
was skipped or deselected, and no input changed meanwhile. `python -m tests.support.pinned unchanged GROUP` compares.

Why this is what a group depends on, and what is not: docs/adr/0076-what-runs-when.md.
"""

from __future__ import annotations

import ast
import dataclasses
import functools
import hashlib
import os
import platform
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

__all__ = ["GROUPS", "Tree", "pytest_addoption", "pytest_configure"]

ROOT: Final = Path(__file__).resolve().parents[2]
GROUPS: Final = ("agents", "browser", "conformance", "documents")
_TABLE: Final = "tests/pinned/inputs.toml"
_PASSED: Final = "tests/pinned/passed"
_ALWAYS: Final = ("pyproject.toml", "tests/conftest.py")
_SOURCES: Final = {"tests": "", "aileron": "", "aileron_sandbox": "sandbox", "aileron_connector": "connectors/sdk"}
"""Packages of this repository, and the folders in which they lie."""
_NOT_READ: Final = {"__pycache__", ".hypothesis"}
_NOT_PASSED: Final = ("skipped", "deselected", "failed", "error")


@dataclasses.dataclass(frozen=True)
class Tree:
    """A checkout of the repository."""

    root: Path

    def table(self) -> dict[str, Any]:
        """Return the hand-written table: `shared`, and `rooms` by group."""
        return tomllib.loads((self.root / _TABLE).read_text(encoding="utf-8"))

    def modules(self, group: str) -> set[Path]:
        """Return the modules of tests that the group's import, its own, and the product's that any of these imports."""
        awaited = [*(self.root / "tests" / group).rglob("*.py"), *(self.root / name for name in _ALWAYS[1:])]
        found: set[Path] = set()
        while awaited:
            path = awaited.pop()
            if path not in found:
                found.add(path)
                if path.is_relative_to(self.root / "tests"):
                    awaited += self.imported(path)
        return found

    def imported(self, path: Path) -> list[Path]:
        """Return the modules of this repository that a module imports."""
        return _module(self.root, path).imported

    def inputs(self, group: str) -> list[Path]:
        """Return all files on which a run of the group depends."""
        places = {self.root / name for name in (*_ALWAYS, *self.table()["rooms"][group], f"tests/{group}")}
        for path in self.modules(group):
            places.add(path)
            if path.is_relative_to(self.root / "tests"):
                places |= _module(self.root, path).named
        return sorted({file for place in places for file in _files(place)})

    def digest(self, group: str) -> str:
        """Return the SHA-256 over names and contents of the inputs, the version of Python, and the kind of user."""
        digest = hashlib.sha256(f"{_python()}\0{_user()}\0".encode())
        for path in self.inputs(group):
            content = path.read_bytes()
            digest.update(f"{path.relative_to(self.root)}\0{len(content)}\0".encode() + content)
        return digest.hexdigest()

    def stamp(self, group: str) -> Path:
        """Return the file that records that the group passed."""
        return self.root / _PASSED / f"{group}.toml"

    def is_unchanged(self, group: str) -> bool:
        """Return whether the group passed with these very inputs."""
        try:
            passed = tomllib.loads(self.stamp(group).read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return False
        return passed.get("inputs") == self.digest(group)


@dataclasses.dataclass(frozen=True)
class _Module:
    """The modules that a module of tests imports, and the files and folders that it names."""

    imported: list[Path]
    named: set[Path]


@functools.cache
def _module(root: Path, path: Path) -> _Module:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    imported = [file for name in _imported(tree) for file in _of_module(root, name)]
    named = set(_Paths(path, _bound(root, path)).named(tree)) - {path, path.parent}
    return _Module(imported, {place for place in named if place.is_relative_to(root) and _is_content(root, place)})


def _is_content(root: Path, place: Path) -> bool:
    """Return whether a place's content is an input. A folder at the top of the tree is only a place to look in."""
    return place.is_file() or (place.is_dir() and root not in (place, place.parent))


def _imported(tree: ast.Module) -> Iterator[str]:
    """Yield names of modules: imported ones, and modules of tests that are started (`python -m tests.support.forks`)."""
    for node in ast.walk(tree):
        match node:
            case ast.Import(names=names):
                yield from (alias.name for alias in names)
            case ast.ImportFrom(module=str(module), names=names):
                yield module
                yield from (f"{module}.{alias.name}" for alias in names)
            case ast.Constant(value=str(text)) if text.startswith("tests.") and text.replace(".", "_").isidentifier():
                yield text


def _of_module(root: Path, name: str) -> Iterator[Path]:
    parts = name.split(".")
    if parts[0] in _SOURCES:
        place = root.joinpath(_SOURCES[parts[0]], *parts)
        yield from (file for file in (place.with_name(f"{parts[-1]}.py"), place / "__init__.py") if file.is_file())


class _Paths:
    """A finder of paths that a module makes of its own, `Path(__file__).parents[1] / "x"`, and of names bound to such paths."""

    def __init__(self, path: Path, names: dict[str, Path]) -> None:
        self._path, self._names = path, names

    def named(self, node: ast.AST) -> Iterator[Path]:
        """Yield each path as it is used: the longest expression; of paths that are only bound to a name, files alone."""
        match node:
            case (
                ast.Assign(targets=[ast.Name()], value=value)
                | ast.AnnAssign(target=ast.Name(), value=ast.expr() as value)
            ):
                place = self.value(value)
                if place is not None and place.is_dir():
                    return
        place = self.value(node)
        if place is not None:
            yield place
            return
        for child in ast.iter_child_nodes(node):
            yield from self.named(child)

    def value(self, node: ast.AST) -> Path | None:
        """Return the path that this expression is, or None."""
        match node:
            case ast.Name(id=name):
                return self._names.get(name)
            case ast.Call(func=ast.Name(id="Path"), args=[ast.Name(id="__file__")]):
                return self._path
            case ast.Call(func=ast.Attribute(value=inner, attr="resolve")):
                return self.value(inner)
            case ast.Attribute(value=inner, attr="parent"):
                return None if (place := self.value(inner)) is None else place.parent
            case ast.Subscript(value=ast.Attribute(value=inner, attr="parents"), slice=ast.Constant(value=int(number))):
                return None if (place := self.value(inner)) is None else place.parents[number]
            case ast.Call(func=ast.Attribute(value=inner, attr="with_suffix"), args=[ast.Constant(value=str(suffix))]):
                return None if (place := self.value(inner)) is None else place.with_suffix(suffix)
            case ast.BinOp(left=left, op=ast.Div(), right=ast.Constant(value=str(name))):
                return None if (place := self.value(left)) is None else place / name
        return None


@functools.cache
def _bound(root: Path, path: Path) -> dict[str, Path]:
    """Return a module's names that are bound to paths, including imported ones."""
    names: dict[str, Path] = {}
    paths = _Paths(path, names)
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        match node:
            case (
                ast.Assign(targets=[ast.Name(id=name)], value=value)
                | ast.AnnAssign(target=ast.Name(id=name), value=ast.expr() as value)
            ):
                if (place := paths.value(value)) is not None:
                    names[name] = place
            case ast.ImportFrom(module=str(module), names=aliases) if module.startswith("tests."):
                for file in _of_module(root, module):
                    there = _bound(root, file)
                    names |= {alias.asname or alias.name: there[alias.name] for alias in aliases if alias.name in there}
    return names


def _files(place: Path) -> Iterator[Path]:
    """Yield the file, or all files of the folder except those that a run leaves there. FileNotFoundError if it does not exist."""
    if place.is_dir():
        for path in place.rglob("*"):
            if path.is_file() and not _NOT_READ & set(path.relative_to(place).parts):
                yield path
    elif place.is_file():
        yield place
    else:
        raise FileNotFoundError(f"{place} is in {_TABLE} and does not exist")


def _python() -> str:
    return f"{platform.python_implementation()} {platform.python_version()}"


def _user() -> str:
    return "root" if os.geteuid() == 0 else "an ordinary user"


def pytest_addoption(parser: Any) -> None:
    """Add the option that names the group to stamp if all its tests pass."""
    parser.addoption("--stamp", choices=GROUPS, help="write down that this group of pinned third parties passed")


def pytest_configure(config: Any) -> None:
    """Register the stamp if the option asks for it."""
    if config.option.stamp:
        config.pluginmanager.register(_Stamp(Tree(ROOT), config.option.stamp, config))


class _Stamp:
    """A plugin that writes the stamp of a group at the end of a session in which all its tests passed."""

    def __init__(self, tree: Tree, group: str, config: Any) -> None:
        self._tree, self._group, self._config = tree, group, config
        self._process = os.getpid()
        self._before = tree.digest(group)

    def pytest_sessionfinish(self, exitstatus: int) -> None:
        """Write the stamp, unless the session showed less than a run of the whole group."""
        if os.getpid() != self._process:
            return  # a shard: it has seen a part
        terminal = self._config.pluginmanager.get_plugin("terminalreporter")
        seen = [outcome for outcome in _NOT_PASSED if terminal.stats.get(outcome)]
        whole = [Path(argument).resolve() for argument in self._config.args] == [
            self._tree.root / "tests" / self._group
        ]
        if exitstatus == 0 and whole and not seen and self._tree.digest(self._group) == self._before:
            path = self._tree.stamp(self._group)
            path.parent.mkdir(exist_ok=True)
            path.write_text(_stamp_text(self._group, self._before), encoding="utf-8")
            terminal.write_line(
                f"\n{self._group}: all passed, which {path.relative_to(self._tree.root)} says: commit it"
            )
        else:
            terminal.write_line(
                f"\n{self._group}: not stamped ({', '.join(seen) or 'not all of it passed, or an input changed'})"
            )


def _stamp_text(group: str, digest: str) -> str:
    return (
        f"# Written by `make {group}` when all of it passed, and only then: docs/adr/0076-what-runs-when.md.\n"
        f'inputs = "{digest}"\npython = "{_python()}"\nas = "{_user()}"\n'
    )


def main() -> int:
    """Exit with 0 if the group is unchanged since it passed, else with 1."""
    match sys.argv[1:]:
        case ["unchanged", group] if group in GROUPS:
            if not Tree(ROOT).is_unchanged(group):
                return 1
            print(
                f"not run: {group}, unchanged since all of it passed ({_PASSED}/{group}.toml); `make {group}` runs it"
            )
            return 0
        case ["inputs", group] if group in GROUPS:
            print("\n".join(str(path.relative_to(ROOT)) for path in Tree(ROOT).inputs(group)))
            return 0
    print(__doc__, file=sys.stderr)
    return 2


if __name__ == "__main__":
    sys.exit(main())
