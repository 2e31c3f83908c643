"""Reads the declarations of commands without importing what their modules import, so that help, which needs only the
declarations, is fast.

    outlined("action.show").__doc__  →   "Show an action: its inputs, steps, hosts and text."

The module is executed in its own namespace, in which `import` works differently. It returns a real module only if declarations
are made of its names, an outline for any other command module, and a stand-in for everything else. If a declaration turns out
to need a stand-in's value (an enum's values, a default), the module that has it is imported, and the outline is made again. The
returned function is never called.

tests/cli/test_help.py compares the resulting pages with those of the imported modules, and checks what is imported.
"""

from __future__ import annotations

import builtins
import sys
import types
from collections.abc import Sequence
from typing import Any, Final

from aileron.cli.declared import Command, parameters_of
from aileron.cli.table import PACKAGE, imported

__all__ = ["outlined"]

_PACKAGES: Final = ("aileron", "aileron.cli")
_AS_THEY_ARE: Final = frozenset(
    {
        "__future__", "collections.abc", "enum", "os", "re", "typing",
        "aileron.cli.declared", "aileron.cli.output", "aileron.cli.problem", "aileron.cli.publisher", "aileron.cli.run",
        "aileron.client", "aileron.model.effect",
    }
)  # fmt: skip
"""Modules that are really imported for an outline: those that declarations use, and those that help has imported anyway."""
_MOST_NEEDED: Final = 8
"""Maximum number of attempts to outline one command module, each of which can find one more module that must be really
imported. If all attempts fail, the command module itself is imported.
"""


class _NeededError(Exception):
    """Exception for a declaration that needs the real value of an imported name, not its stand-in. `module` has the name."""

    def __init__(self, module: str) -> None:
        self.module = module


class _StandIn(type):
    """A stand-in for an imported name, which is used as part of a type, as a base class or as a decorator.

    `of` is the module that has the name.
    """

    of: str

    def __getattr__(cls, name: str) -> _StandIn:
        if name.startswith("__"):
            raise AttributeError(name)
        return _stand_in(cls.of, name)

    def __call__(cls, *_: Any, **__: Any) -> _StandIn:
        return cls

    def __iter__(cls) -> Any:
        raise _NeededError(cls.of)

    def __repr__(cls) -> str:
        raise _NeededError(cls.of)


class _Base:
    def __init_subclass__(cls, **_: Any) -> None:
        pass


def _stand_in(module: str, name: str = "") -> _StandIn:
    return _StandIn(name, (_Base,), {"of": module})


class _Outlines:
    """Outlines of command modules: each module's names, after its code ran with stand-ins for all imports except the
    modules `as_they_are`.
    """

    def __init__(self, as_they_are: frozenset[str] = _AS_THEY_ARE) -> None:
        self.as_they_are = as_they_are
        self._made: dict[str, types.SimpleNamespace] = {}

    def of(self, module: str) -> types.SimpleNamespace:
        """Return a namespace with the names of a module's outline."""
        if module not in self._made:
            from importlib.util import find_spec

            spec = find_spec(module)
            code = spec.loader.get_code(module)  # type: ignore[union-attr]  # all these modules are files
            names: dict[str, Any] = {"__name__": module, "__builtins__": {**vars(builtins), "__import__": self._import}}
            exec(code, names)  # noqa: S102 - our own module, which `import` would execute too
            self._made[module] = types.SimpleNamespace(**names)
        return self._made[module]

    def _import(
        self, name: str, _: Any = None, __: Any = None, names: Sequence[str] | None = None, level: int = 0
    ) -> Any:
        """Import a module or its stand-in for an `import` statement in an outline. Relative imports do not occur."""
        if name in self.as_they_are:
            return __import__(name, None, None, names or (), level)
        if name.startswith(f"{PACKAGE}."):
            return self.of(name)
        if name in _PACKAGES:
            return types.SimpleNamespace(**{part: self._part(name, part) for part in names or ()})
        return _stand_in(name)

    def _part(self, package: str, name: str) -> Any:
        """Return the submodule `name` if it is one of those that are really imported; otherwise the value that the
        package has under this name, or else a stand-in.
        """
        module = f"{package}.{name}"
        if module in self.as_they_are:
            return __import__(module, None, None, ("",))
        return getattr(sys.modules[package], name, None) or _stand_in(module)


_outlines = _Outlines()


def outlined(function: str, *, is_read: bool = True) -> Command:
    """Return the command function MODULE.NAME, from an outline if possible. Use it only to read its declarations: it
    must not be called.

    Its parameters are checked only if `is_read`, that is, if help will read them.
    """
    global _outlines
    module, _, name = function.partition(".")
    if f"{PACKAGE}.{module}" in sys.modules:
        return imported(function)
    for _ in range(_MOST_NEEDED):
        try:
            found: Command = getattr(_outlines.of(f"{PACKAGE}.{module}"), name)
            if is_read:
                _check_parameters(found)
        except _NeededError as needed:
            _outlines = _Outlines(_outlines.as_they_are | {needed.module})
        except Exception:  # noqa: BLE001 - a stand-in may cause any error: the real module decides, and fails if it is wrong
            break
        else:
            return found
    return imported(function)


def _check_parameters(command: Command) -> None:
    """Check that no stand-in is left where help shows a parameter's default or type. Raises _NeededError otherwise.

    The type of a path need not be real, because its name is sufficient.
    """
    for parameter in parameters_of(command):
        for part in (parameter.default, None if getattr(parameter.kind, "__name__", "") == "Path" else parameter.kind):
            if isinstance(part, _StandIn):
                raise _NeededError(part.of)
