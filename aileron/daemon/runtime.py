"""The files and modules that a Python connector finds in its jail.

Runs once in the daemon. Not here: the jail (aileron_sandbox), the environment of `aileron connector test`
(aileron/connector_tests/bench.py).
"""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Final

import msgspec

import aileron_sandbox
from aileron.model.failure import AileronError, FailureClass
from aileron_sandbox.runtime import PythonRuntime

__all__ = ["connector_runtime"]

_PRELOAD: Final = (
    "aileron_connector",
    "aileron_connector.rehearsal",
    "msgspec",
    "base64",
    "collections",
    "contextlib",
    "dataclasses",
    "datetime",
    "enum",
    "functools",
    "html",
    "inspect",
    "io",
    "itertools",
    "json",
    "re",
    "string",
    "textwrap",
    "typing",
    "urllib.parse",
    "xml.etree.ElementTree",
    "zipimport",
)
"""Modules that connectors commonly import. The template imports them once, so that each jail need not import them.
`random` must not be among them, because its state would be the same in all jails.
"""
_REHEARSAL: Final = "from aileron_connector.rehearsal import rehearse\nrehearse()\n"


def connector_runtime() -> PythonRuntime:
    """Return the runtime of Python connectors: this interpreter, with the modules that connectors may use. Raises
    JailUnavailable, AileronError.
    """
    sandbox = Path(aileron_sandbox.__file__).resolve().parent
    return PythonRuntime.of_this_interpreter(
        packages={
            "msgspec": Path(msgspec.__file__).resolve().parent,
            "aileron_connector": _folder("aileron_connector"),
            "aileron_sandbox/__init__.py": sandbox / "__init__.py",
            "aileron_sandbox/frames": sandbox / "frames",
        },
        preload=_PRELOAD,
        rehearsal=_REHEARSAL,
    )


def _folder(package: str) -> Path:
    """Return the folder of a package without importing the package, because packages for jails do not belong in the daemon."""
    spec = importlib.util.find_spec(package)
    if spec is None or spec.origin is None:
        raise AileronError(
            FailureClass.INTERNAL_ERROR, f"{package} is not installed with aileron: install aileron again"
        )
    return Path(spec.origin).resolve().parent
