"""Import hooks that patch a library when it is imported.

A finder at the front of `sys.meta_path` handles only the names below. It lets the other finders find the module, and
wraps the module's loader so that a function is called after the module was executed. Any other import costs one
dictionary lookup, 0.1 µs (measured).

Source: https://docs.python.org/3/reference/import.html#the-meta-path. Not here: the changes (the modules named below).
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any, Final

__all__ = ["install"]

_HERE: Final = "aileron_connector.transports"
_CHANGES: Final = {
    "botocore.loaders": ("botocore", "change_loaders"),
    "certifi.core": ("authorities", "change_certifi"),
    "dulwich.client": ("git", "change_dulwich"),
    "dulwich.object_store": ("git", "change_modes"),
    "dulwich.repo": ("git", "change_modes"),
    "http.client": ("http_client", "change_http_client"),
    "requests.adapters": ("authorities", "change_requests"),
    "urllib3.connection": ("http_client", "change_urllib3"),
    "httpx": ("httpx", "change_httpx"),
    "httpx2": ("httpx", "change_httpx"),
    "imaplib": ("mail", "change_imaplib"),
    "poplib": ("mail", "change_poplib"),
    "smtplib": ("mail", "change_smtplib"),
    "socket": ("sockets", "change_socket"),
    "ssl": ("authorities", "change_ssl"),
    "websockets.asyncio.client": ("websockets_asyncio", "change_asyncio_client"),
    "websockets.sync.client": ("websockets", "change_sync_client"),
}
"""Patches by the name of the library's module: our module, and its function that gets the library's module after its
execution.
"""


class _Finder:
    """A finder for sys.meta_path. It only wraps the loaders that other finders find."""

    @staticmethod
    def find_spec(name: str, path: Sequence[str] | None = None, target: ModuleType | None = None) -> ModuleSpec | None:
        """Return the other finders' spec, with a loader that patches the module, if the name is in _CHANGES; otherwise None."""
        if name not in _CHANGES:
            return None
        for finder in sys.meta_path:
            if finder is not _Finder:
                spec = finder.find_spec(name, path, target)
                if spec is not None:
                    if spec.loader is not None:
                        spec.loader = _Loader(spec.loader)  # type: ignore[assignment]
                    return spec
        return None


class _Loader:
    """A loader that patches the module after its execution. Before that, it makes the original loader the module's
    loader again.
    """

    def __init__(self, loader: Any) -> None:
        self._loader: Final = loader

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        """Create the module with the original loader."""
        created: ModuleType | None = self._loader.create_module(spec)
        return created

    def exec_module(self, module: ModuleType) -> None:
        """Execute the module with the original loader, and then change the module."""
        module.__loader__ = self._loader
        if module.__spec__ is not None:
            module.__spec__.loader = self._loader
        self._loader.exec_module(module)
        _change(module)


def install() -> None:
    """Install the finder for later imports, and patch modules that are already imported. Does nothing if it was called
    before.
    """
    if _Finder in sys.meta_path:
        return
    sys.meta_path.insert(0, _Finder)
    for name in _CHANGES:
        module = sys.modules.get(name)
        if module is not None:
            _change(module)


def _change(module: ModuleType) -> None:
    ours, function = _CHANGES[module.__name__]
    name = f"{_HERE}.{ours}"
    __import__(name)
    getattr(sys.modules[name], function)(module)
