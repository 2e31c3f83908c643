"""What confines an agent in its cell: found out by making that and closing it again, with nothing executed in it.

Runs in commands, for `--explain`. Not here: the cell in which an agent runs (in_cell.py), whether this machine can make any
(aileron_sandbox.cell.support).
"""

from __future__ import annotations

import os

import msgspec

from aileron.launch.sights import Sights
from aileron_sandbox.cell.door import Cell, Streams

__all__ = ["layers_of"]

_STREAMS: Streams = ("pipe", "pipe", "pipe")
_PROGRAM = "/usr/bin/env"
"""It is named and never executed."""


def layers_of(sights: Sights) -> tuple[str, ...]:
    """Of an agent's cell, as it would be if what is missing of the agent's files were there. JailUnavailable."""
    there = tuple(bind for bind in sights.policy.binds if os.path.exists(bind.source))
    policy = msgspec.structs.replace(sights.policy, binds=there)
    with Cell.start(policy, [_PROGRAM], {}, _STREAMS) as cell:
        return cell.layers
