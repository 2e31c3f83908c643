"""The files and modules that a Python connector finds in its jail.

Runs in the daemon, once. Not here: the jail (aileron_sandbox), what `aileron connector test` shows (aileron/trial/bench.py).
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
"""What connectors commonly import: done once in the template instead of in every jail. Never `random`: its state would be
the same in all of them."""
_REHEARSAL: Final = "from aileron_connector.rehearsal import rehearse\nrehearse()\n"


def connector_runtime() -> PythonRuntime:
    """The interpreter that runs this, with what connectors may import. JailUnavailable, AileronError."""
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
    """Where a package lies, without importing it: what is made for jails has no business in the daemon."""
    spec = importlib.util.find_spec(package)
    if spec is None or spec.origin is None:
        raise AileronError(
            FailureClass.INTERNAL_ERROR, f"{package} is not installed with aileron: install aileron again"
        )
    return Path(spec.origin).resolve().parent
