"""The layers that confine an agent in its cell. They are determined by making the cell and closing it again, without
executing a program.

Runs in commands, for `--explain`. Not here: the cell in which an agent runs (in_cell.py), whether this machine can make one
(aileron_sandbox.cell.support).
"""

from __future__ import annotations

import os

import msgspec

from aileron.launch.cell_spec import CellSpec
from aileron_sandbox.cell.door import Cell, Streams

__all__ = ["layers_of"]

_STREAMS: Streams = ("pipe", "pipe", "pipe")
_PROGRAM = "/usr/bin/env"
"""Path that is given as the cell's program, but never executed."""


def layers_of(spec: CellSpec) -> tuple[str, ...]:
    """Return the layers of an agent's cell. Binds whose source is missing, such as files that are made later, are
    left out. Raises JailUnavailable if the cell cannot be made.
    """
    there = tuple(bind for bind in spec.policy.binds if os.path.exists(bind.source))
    policy = msgspec.structs.replace(spec.policy, binds=there)
    with Cell.start(policy, [_PROGRAM], {}, _STREAMS) as cell:
        return cell.layers
