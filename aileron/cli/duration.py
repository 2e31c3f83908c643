"""Durations as people type them: `500ms`, `25` (seconds), `5m`, `2d`.

Pure, and imported by `aileron run`: it imports little. Not here: durations in files (config.py, actions/manifest.py), whose units
belong to their format.

>>> seconds("5m", command="run")
300.0
"""

from __future__ import annotations

import re

from aileron.cli.problem import Problem

__all__ = ["seconds"]

_DURATION = re.compile(r"([0-9]{1,6})(ms|s|m|h|d)?", re.ASCII)
_UNIT_S = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0, None: 1.0}


def seconds(text: str, *, command: str, option: str = "--wait", most: str = "24h") -> float:
    """Return a duration in seconds.

    Raises Problem for any other text, and for a duration above `most`; the suggested fix is the help of `command`.
    """
    found, most_s = (_in_seconds(duration) for duration in (text, most))
    if not 0.0 <= found <= most_s:
        raise Problem.usage(
            f"{option} {text!r} is not a duration up to {most}, such as 500ms, 90s or 5m",
            fix=f"aileron {command} --help",
        )
    return found


def _in_seconds(text: str) -> float:
    match = _DURATION.fullmatch(text)
    return int(match[1]) * _UNIT_S[match[2]] if match else -1.0
