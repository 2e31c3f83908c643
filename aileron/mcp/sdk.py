"""Importing only the parts of the MCP SDK that are needed, which saves 18 MB and a quarter of a second.

The packages `mcp` and `mcp.server` import a client, a framework and a web server, none of which the low-level server uses.
In the MCP process, these packages are replaced by empty ones, from which their modules can still be imported. sse_starlette
tries to import `uvicorn`, to detect its shutdown, and starlette tries to import a parser of forms, though no request here has
a form. Both work without these imports. pydantic loads no plugins: other installed packages register them, and their code
would run in this process.

Source: pydantic, PYDANTIC_DISABLE_PLUGINS.

Not here: the choice of imported modules (server.py), the building of their models (models.py).
"""

from __future__ import annotations

import importlib.util
import os
import sys
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Final

__all__ = ["import_little"]

_PACKAGES: Final = ("mcp", "mcp.server")
_NOT_HERE: Final = ("uvicorn", "python_multipart", "multipart")


def import_little() -> None:
    """Replace the packages of the MCP SDK in this process by empty ones, so that a submodule is imported without the
    others.

    Raises ImportError if the SDK is not installed.
    """
    for name in _PACKAGES:
        spec = importlib.util.find_spec(name)
        if spec is None or spec.submodule_search_locations is None:
            raise ImportError(f"{name} is not installed with aileron: install aileron again")
        bare = ModuleType(name)
        bare.__spec__ = ModuleSpec(name, None, is_package=True)
        bare.__path__ = list(spec.submodule_search_locations)
        sys.modules[name] = bare
        parent, _, last = name.rpartition(".")
        if parent:
            setattr(sys.modules[parent], last, bare)
    os.environ["PYDANTIC_DISABLE_PLUGINS"] = "__all__"
    for name in _NOT_HERE:
        sys.modules[name] = None  # type: ignore[assignment] # whose import is an ImportError, as the import system says
