r"""The login of an operation in the sources of a Python connector: `@op(login="read_only")`.

Static, like operations.py, which records everything else about an operation. A record by operations.py can be incomplete, but
a login must not get lost: without it, an operation whose author says that it only reads would run with a role that can write.

Rules
- Only a decorator with a literal login is read. Any other code that could state a login fails the build.
- A login in the sources is valid only if the manifest's entry for the operation has the same login.

>>> said_logins({"__main__.py": b'from aileron_connector import op\n@op(login="read_only")\ndef query(): pass'})
{'query': 'read_only'}

Source: docs/reference/connector-manifest.md. Not here: what a login of an operation is (docs/reference/logins.md).
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Mapping
from typing import Final, cast, get_args

from msgspec import UNSET

from aileron.model.manifest import Operation, OperationLogin
from aileron.registry.reachable import SDK, Names, nodes_of

__all__ = ["OP_HOMES", "check_logins", "login_of", "said_logins"]

OP_HOMES: Final = frozenset({SDK, f"{SDK}.operation"})
"""Modules from which `op` can be imported."""
_WORDS: Final = frozenset[str](get_args(OperationLogin))
_LOOKS_SO: Final = re.compile(rb"""\blogin\s*[=:]\s*["'](?:read_only|previewed)["']""")
"""Pattern of a source text that looks like `login="read_only"` or `"previewed"`, for a file that cannot be parsed."""
_Function = ast.FunctionDef | ast.AsyncFunctionDef


def login_of(decorator: ast.expr, names: Names) -> OperationLogin | None:
    """Return the login in `@op(login=WORD)`; None for any other decorator."""
    match decorator:
        case ast.Call(func=func, args=[], keywords=[ast.keyword(arg="login", value=ast.Constant(value=str(word)))]):
            home, _, name = (names.dotted(func) or "").rpartition(".")
            if name == "op" and home in OP_HOMES and word in _WORDS:
                return cast("OperationLogin", word)
    return None


def said_logins(sources: Mapping[str, bytes]) -> dict[str, OperationLogin]:
    """Return the `login` that each operation states in its decorator, by operation name. `sources` are files by relative path.

    Raises ValueError if a login cannot be determined.
    """
    found: dict[str, OperationLogin] = {}
    for path, data in sorted(sources.items()):
        if not path.endswith(".py") or not (b"login" in data or SDK.encode() in data):
            continue
        for name, login in _said_in(path, data):
            if found.setdefault(name, login) != login:
                raise ValueError(f'operation "{name}" is declared with two logins')
    return found


def check_logins(said: Mapping[str, OperationLogin], operations: Iterable[Operation] | None) -> None:
    """Raise ValueError unless the manifest's `operations` have every login in `said`, which maps an operation to the
    login that the sources state.

    `operations` is None if the manifest lists no operations.
    """
    recorded = {operation.name: operation.login for operation in operations or ()}
    for name, login in sorted(said.items()):
        if recorded.get(name, UNSET) == login:
            continue
        if operations is None:
            raise ValueError(
                f'the code says login = "{login}" of operation "{name}", and its operations cannot be read off the code; '
                "write [[operations]]"
            )
        raise ValueError(
            f'the code says login = "{login}" of operation "{name}", and [[operations]] does not; say it in both, or leave '
            "[[operations]] out"
        )


def _said_in(path: str, data: bytes) -> list[tuple[str, OperationLogin]]:
    nodes = nodes_of(data)
    if nodes is None:
        if _LOOKS_SO.search(data):
            raise ValueError(f"{path}: the login of an operation cannot be read off a file that cannot be parsed")
        return []
    names = Names(nodes)
    found, read = [], set[int]()
    for node in nodes:
        for decorator in node.decorator_list if isinstance(node, _Function) else ():
            login = login_of(decorator, names)
            if login is not None and isinstance(node, _Function):
                found.append((node.name, login))
                read.add(id(decorator))
    for node in nodes:
        if id(node) not in read and _may_say_a_login(node, names):
            line = getattr(node, "lineno", 0)
            raise ValueError(
                f"{path}:{line}: the login of an operation is read off the code; write @op(login=WORD) above its function, "
                f"WORD one of {', '.join(map(repr, sorted(_WORDS)))}"
            )
    return found


def _may_say_a_login(node: ast.AST, names: Names) -> bool:
    """Return whether `node` is a call that may state an operation's login.

    It may in two cases: the SDK's `op` is the called function or a positional argument, and the call has `login=` or `**`; or
    the call has `login=` with a literal login, whatever the function.
    """
    if not isinstance(node, ast.Call):
        return False
    dotted = [names.dotted(expression) or "" for expression in (node.func, *node.args)]
    has_op = any(name.rpartition(".")[::2] in {(home, "op") for home in OP_HOMES} for name in dotted)
    return any(
        (has_op and keyword.arg in (None, "login"))
        or (keyword.arg == "login" and isinstance(keyword.value, ast.Constant) and keyword.value.value in _WORDS)
        for keyword in node.keywords
    )
