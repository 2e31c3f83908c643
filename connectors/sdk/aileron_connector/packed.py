"""Reading description files that are packed together with a connector's program, and declaring their operations.

For connectors that consist of a description and one line of code (openapi/, mcp/). Runs in the jail. Not here: the contents
of a description.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from typing import Any

from aileron_connector import operation
from aileron_sandbox.frames import JSONObject

__all__ = ["data_of", "declare"]


def data_of(package: str, file: str) -> bytes:
    """Return the bytes of a file in a package, from a zip or a folder. It does the same as `pkgutil.get_data` without
    importing pkgutil.
    """
    __import__(package)
    module = sys.modules[package]
    loader: Any = module.__spec__.loader if module.__spec__ is not None else None
    data: bytes = loader.get_data(f"{module.__path__[0]}/{file}")
    return data


def declare(names: Iterable[str], call: Callable[[str, JSONObject], Any]) -> None:
    """Declare operations with these names. `call` gets the name and the arguments of a call, and must check them.
    Raises ValueError if a name is already declared.
    """
    for name in names:
        if name in operation.OPERATIONS:
            raise ValueError(f"operation {name!r} is declared twice")
        operation.OPERATIONS[name] = _function(name, call)


def _function(name: str, call: Callable[[str, JSONObject], Any]) -> Callable[..., Any]:
    def called(**arguments: Any) -> Any:
        return call(name, arguments)

    return called
