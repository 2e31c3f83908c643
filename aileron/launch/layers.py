"""What confines an agent in a cell on this machine: found out by making one and closing it again, with nothing executed in it.

Runs in commands: doctor, `--explain`, and whoever asks whether cells are possible. Not here: an agent's own cell (in_cell.py).
"""

from __future__ import annotations

import dataclasses
import os

from aileron.launch.sights import Sights
from aileron.launch.system_sights import system_sights
from aileron_sandbox.cell.door import Cell, Streams
from aileron_sandbox.cell.policy import Bind, CellPolicy

__all__ = ["layers_here", "layers_of"]

_STREAMS: Streams = ("pipe", "pipe", "pipe")
_HOME = "/home/nobody"
_PROGRAM = "/usr/bin/env"
"""It is named and never executed."""


def layers_here() -> tuple[str, ...]:
    """Of any cell on this machine. JailUnavailable, with the fix."""
    system = system_sights(looked_at=())
    binds = tuple(Bind(source, target, mounts=True) for source, target in system.directories)
    return _layers(CellPolicy(folder="/usr", home=_HOME, binds=binds, links=system.links))


def layers_of(sights: Sights) -> tuple[str, ...]:
    """Of an agent's cell, as it would be if what is missing of the agent's files were there. JailUnavailable."""
    there = tuple(bind for bind in sights.policy.binds if os.path.exists(bind.source))
    return _layers(dataclasses.replace(sights.policy, binds=there))


def _layers(policy: CellPolicy) -> tuple[str, ...]:
    with Cell.start(policy, [_PROGRAM], {}, _STREAMS) as cell:
        return cell.layers
