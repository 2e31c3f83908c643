"""The check whether code that an operation can reach may send a request. The result is false only if the code certainly
sends none.

Pure, and static like operations.py, which calls it. Python code can call a function without naming it, so this module does not
search for requests. It recognizes code that certainly sends none, and treats all other code as a request with a credential.

Rules
- The program is one file: functions that another file registers, replaces or passes on are not followed.
- Code that runs while the file is imported counts as reached by every operation, since it may store functions where any code
  finds them (in a table of handlers, a registering decorator, a base class).
- Any other function or plain class counts as reached if its name occurs, even in a string, such as a type hint.
- Only the SDK's names, and the modules of the standard library that call only functions passed to them, are known. Anything
  else counts as a request: the SDK used as a value, `getattr` and its like, unknown modules.
- An operation needs no credential only if each request is called by its own name, with arguments that can be counted.

Not here: whether a function is an operation (operations.py).
"""

from __future__ import annotations

import ast
import re
import warnings
from collections.abc import Iterable, Iterator, Set
from typing import Final, NamedTuple

__all__ = ["MAX_SOURCE_BYTES", "SDK", "Names", "Reachability", "nodes_of"]

SDK: Final = "aileron_connector"
MAX_SOURCE_BYTES: Final = 1 << 20
"""1 MiB: maximum size of a file that is parsed; the largest connector written by hand has 20 KiB."""
_HARMLESS: Final = frozenset(
    "op run log progress audit BadInput ConnectorError ExternalApiError NetworkError Refused".split()
)
"""Functions and classes of the SDK that send no request."""
_REQUESTING: Final = frozenset({"http", "tcp", "hosts"})
_CALLED: Final = frozenset(f"{SDK}.{name}" for name in ("hosts", "http.hosts", "http.request", "tcp.connect"))
"""SDK functions whose arguments in a call show whether the call may use a credential."""
_TRUSTED: Final = frozenset(
    "__future__ abc base64 binascii bisect calendar collections contextlib copy csv dataclasses datetime decimal difflib email "
    "enum fractions functools hashlib heapq hmac html itertools json math msgspec numbers quopri random re secrets statistics "
    "struct textwrap time typing typing_extensions unicodedata uuid zlib zoneinfo".split()
)
"""Modules that call no function of the connector except those passed to them, and send nothing.

Not `os`, `io` or `socket`: frames are bytes in a pipe, which any code can write.
"""
_TRUSTED_PART: Final = "urllib.parse"
"""Trusted submodule of `urllib`, whose other submodules can send requests."""
_DYNAMIC: Final = frozenset(
    "getattr setattr delattr globals locals vars dir eval exec __import__ builtins importlib sys modules inspect gc ctypes types "
    "operator attrgetter methodcaller get_field runpy pkgutil pickle get_type_hints ForwardRef open breakpoint help input "
    "gi_frame cr_frame ag_frame tb_frame f_back f_globals f_locals f_builtins".split()
)
"""Names and attributes through which code can reach a function without naming it, or write to the pipe to the daemon."""
_PLAIN_DUNDERS: Final = frozenset("__init__ __name__ __doc__ __file__ __main__ __class__ __post_init__".split())
_WORD: Final = re.compile(r"[^\W\d]\w*")
_UNNAMED: Final = 5
"""Number of positional parameters of `http.request`; the last is the credential."""
_MAX_PARTS: Final = 8
"""Maximum number of attributes in a name that `Names.dotted` resolves; known names of the SDK have three."""
_Function = ast.FunctionDef | ast.AsyncFunctionDef
_BLOCKS: Final = (
    *(ast.If, ast.For, ast.While, ast.With, ast.Try, ast.TryStar, ast.Match),
    *(ast.ExceptHandler, ast.match_case),
)


def nodes_of(data: bytes) -> list[ast.AST] | None:
    """Return all nodes of a file; None if the file is too large or cannot be parsed."""
    if len(data) > MAX_SOURCE_BYTES:
        return None
    try:
        return list(ast.walk(ast.parse(data)))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


class Names:
    """The imported names of one file and what they refer to, including imports in functions and below `if TYPE_CHECKING`."""

    def __init__(self, nodes: Iterable[ast.AST]) -> None:
        """Read the imports. `nodes` are all nodes of the file."""
        self.imported: dict[str, str] = {}
        """Fully qualified name, such as `aileron_connector.http`, by the name that an import binds in the file."""
        self.doubtful: set[str] = set()
        """Names that two imports bind to different things."""
        self.has_star = False
        for node in nodes:
            if isinstance(node, ast.Import):
                for alias in node.names:
                    top = alias.name.partition(".")[0]
                    self._import(alias.asname or top, alias.name if alias.asname else top)
            elif isinstance(node, ast.ImportFrom):
                where = "." * node.level + (node.module or "")
                for alias in node.names:
                    self.has_star |= alias.name == "*"
                    if alias.name == "*" and where.partition(".")[0] == SDK:
                        self._import("op", f"{where}.op")
                    self._import(alias.asname or alias.name, f"{where}.{alias.name}")

    def dotted(self, node: ast.AST) -> str | None:
        """Return the qualified name of a dotted expression: its first name, as the imports resolve it, and the
        attributes after it. Return None for other nodes and for too many attributes.
        """
        parts: list[str] = []
        while isinstance(node, ast.Attribute) and len(parts) < _MAX_PARTS:
            parts.append(node.attr)
            node = node.value
        if not isinstance(node, ast.Name):
            return None
        return ".".join([self.imported.get(node.id, node.id), *reversed(parts)])

    def _import(self, name: str, meant: str) -> None:
        if self.imported.setdefault(name, meant) != meant:
            self.doubtful.add(name)


class _Found(NamedTuple):
    """The possible effects of AST nodes: sending a request, using a credential, and mentioning `names` that the same
    file defines.
    """

    network: bool
    credential: bool
    names: frozenset[str]


_ANYTHING: Final = _Found(network=True, credential=True, names=frozenset())


class Reachability:
    """The search for requests in all code that a function can reach, in a program of one file. Each AST node is examined once."""

    def __init__(self, tree: ast.Module, nodes: Iterable[ast.AST], names: Names, operations: Set[ast.AST]) -> None:
        """Record which nodes define each global name, and what the file may do when it is imported.

        `nodes` are all nodes of `tree`; `operations` are the functions whose decorators are all `op`, so no other decorator
        can store and call them.
        """
        self._names: Final = names
        self._operations: Final = operations
        self._defined: dict[str, list[ast.AST]] = {}
        self._looked_at: dict[ast.AST, _Found] = {}
        for node in nodes:
            for name in _given(node):
                self._defined.setdefault(name, []).append(node)
        pieces = [part for statement in tree.body for part in self._at_import(statement)]
        self._imported: Final = self._followed(pieces, _Found(names.has_star, names.has_star, frozenset()), frozenset())

    def of(self, function: ast.AST) -> tuple[bool, bool]:
        """Return whether a function may send a request, and whether it may send one with a credential."""
        found, _ = self._followed([function], *self._imported)
        return found.network, found.network and found.credential

    def _followed(self, pieces: list[ast.AST], known: _Found, before: Set[ast.AST]) -> tuple[_Found, Set[ast.AST]]:
        """Return the effects of the nodes `pieces` and of all code that they can reach, and the set of the nodes that
        this call examined.

        `known` are the effects of the nodes in `before`, which are not examined again; the returned effects include them.
        """
        ahead, seen = list(pieces), set[ast.AST]()
        while ahead and not (known.network and known.credential):
            node = ahead.pop()
            if node in before or node in seen:
                continue
            seen.add(node)
            found = self._looked_at.get(node) or self._look(node)
            self._looked_at[node] = found
            known = _Found(known.network | found.network, known.credential | found.credential, frozenset())
            for name in found.names:
                ahead += self._defined[name]
        return known, seen

    def _at_import(self, node: ast.AST) -> Iterator[ast.AST]:
        """Yield the parts of a statement that run while the file is imported.

        For a function without a decorator, or with `op` alone, these are its parameters and return type, not its body.
        """
        if isinstance(node, _Function) and (not node.decorator_list or node in self._operations):
            yield node.args
            if node.returns is not None:
                yield node.returns
        elif isinstance(node, _BLOCKS) or (isinstance(node, ast.ClassDef) and _is_plain(node)):
            for child in ast.iter_child_nodes(node):
                yield from self._at_import(child)
        else:
            yield node

    def _look(self, piece: ast.AST) -> _Found:
        network = credential = False
        names: set[str] = set()
        ahead: list[ast.AST] = [piece]
        while ahead:
            node = ahead.pop()
            if self._is_unknown(node):
                return _ANYTHING
            credential |= _may_name_a_credential(node)
            if isinstance(node, ast.Call) and self._names.dotted(node.func) in _CALLED:
                if self._is_unknown(node.func):
                    return _ANYTHING
                network = True
                names |= self._mentioned(node.func)  # the name may be bound to something else in this file
                ahead += [*node.args, *node.keywords]
            elif (known := self._of_sdk(node)) is not None or self._is_trusted_part(node):
                names |= self._mentioned(node)
                if known in _REQUESTING:  # as a value: its callers are not known
                    network = credential = True
            elif isinstance(node, ast.Name | ast.Constant):
                names |= self._mentioned(node)
            elif not _is_docstring(node):
                ahead += ast.iter_child_nodes(node)
        return _Found(network, credential, frozenset(names))

    def _of_sdk(self, node: ast.AST) -> str | None:
        """Return the first part of an SDK name after the SDK's own name; empty for the SDK itself; None for any other node."""
        top, _, rest = (self._names.dotted(node) or "").partition(".")
        return rest.partition(".")[0] if top == SDK else None

    def _is_trusted_part(self, node: ast.AST) -> bool:
        return f"{self._names.dotted(node)}.".startswith(f"{_TRUSTED_PART}.")

    def _is_unknown(self, node: ast.AST) -> bool:
        match node:
            case ast.Attribute(attr=name) if _is_dynamic(name):
                return True
            case ast.Name(id=name) if _is_dynamic(name) or name in self._names.doubtful:
                return True
            case ast.Name(id=name) if name in self._names.imported:
                top, *others = self._names.imported[name].split(".")
                is_trusted = top in _TRUSTED or top == SDK or self._is_trusted_part(node)
                if not is_trusted or any(map(_is_dynamic, others)):
                    return True
        known = self._of_sdk(node)
        if known is None:
            return False
        is_known = known in _HARMLESS or known in _REQUESTING
        return not is_known or (isinstance(node, ast.Attribute) and self._is_unknown_before(node))

    def _is_unknown_before(self, node: ast.Attribute) -> bool:
        """Return whether, in a dotted SDK name, a part before the last is dynamic (`_is_dynamic`) or imported twice."""
        inner = node.value
        if isinstance(inner, ast.Attribute):
            return _is_dynamic(inner.attr) or self._is_unknown_before(inner)
        return isinstance(inner, ast.Name) and (_is_dynamic(inner.id) or inner.id in self._names.doubtful)

    def _mentioned(self, node: ast.AST) -> set[str]:
        """Return the names of this file that a node mentions, including in a string that may be a type hint."""
        while isinstance(node, ast.Attribute):
            node = node.value
        match node:
            case ast.Name(id=name):
                return {name} & self._defined.keys()
            case ast.Constant(value=str(text)):
                found = set(_WORD.findall(text)) & self._defined.keys()
                return found if found and _is_expression(text) else set()
            case _:
                return set()


def _given(node: ast.AST) -> Iterator[str]:
    """Yield the global names that a function or class may bind: its own name, and those that a function declares `global`."""
    if isinstance(node, _Function | ast.ClassDef):
        yield node.name
    if isinstance(node, _Function):
        for part in ast.walk(node):
            yield from part.names if isinstance(part, ast.Global) else ()


def _is_plain(node: ast.ClassDef) -> bool:
    """Return whether creating the class runs no other code: it has no base, keyword or decorator, and only methods."""
    has_methods_alone = all(
        isinstance(statement, _Function | ast.Pass) or _is_docstring(statement) for statement in node.body
    )
    return has_methods_alone and not (node.bases or node.keywords or node.decorator_list)


def _is_expression(text: str) -> bool:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # such as for `1if`: bad spelling in a text does not concern a build
            ast.parse(text.strip(), mode="eval")
    except (SyntaxError, ValueError):
        return False
    return True


def _is_docstring(node: ast.AST) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)


def _is_dynamic(name: str) -> bool:
    is_dunder = name.startswith("__") and name.endswith("__")
    return name in _DYNAMIC or (is_dunder and name not in _PLAIN_DUNDERS)


def _may_name_a_credential(node: ast.AST) -> bool:
    match node:
        case ast.keyword(arg=None | "credential") | ast.Constant(value="credential") | ast.Starred():
            return True
        case ast.Call(args=args):
            return len(args) >= _UNNAMED
        case _:
            return False
