"""A description that lies beside the program: its bytes, and the operations that it has made known.

For connectors that are a description and one line (openapi/, mcp/). Runs in the jail. Not here: what a description says.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from typing import Any

from aileron_connector import operation

__all__ = ["data_of", "declare"]


def data_of(package: str, file: str) -> bytes:
    """What `pkgutil.get_data` gives, without importing it: the package's loader has it, in a zip and in a folder."""
    __import__(package)
    module = sys.modules[package]
    loader: Any = module.__spec__.loader if module.__spec__ is not None else None
    data: bytes = loader.get_data(f"{module.__path__[0]}/{file}")
    return data


def declare(names: Iterable[str], call: Callable[[str, dict[str, Any]], Any]) -> None:
    """Make these operations known, each with any arguments: `call` checks them. ValueError if there is one of such a name."""
    for name in names:
        if name in operation.OPERATIONS:
            raise ValueError(f"operation {name!r} is declared twice")
        operation.OPERATIONS[name] = _function(name, call)


def _function(name: str, call: Callable[[str, dict[str, Any]], Any]) -> Callable[..., Any]:
    def called(**arguments: Any) -> Any:
        return call(name, arguments)

    return called
