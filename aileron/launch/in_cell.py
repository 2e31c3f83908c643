"""One agent in a cell, in the foreground of our terminal, from before it starts until everything in it is gone.

Runs in the command, outside, which is the process of the session: what comes through the doors is known by it. In order: what is
missing of the agent's own files is made; which names there are is read; the cell is prepared, and meanwhile the session opened;
the doors are opened; the agent starts; at its end the cell is closed, and what it changed is told.

Rules
- The session's token goes into no cell: it is the preamble of one door, which is said outside.
- Nothing is executed before all doors are open, and nothing is looked at before the cell is closed.

Source: docs/adr/0062-the-agent-in-a-cell.md. Not here: what it sees (sights.py), the session (aileron/cli), who answers (daemon).
"""

from __future__ import annotations

import contextlib
import json
import os
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Final

import msgspec

from aileron.cell.changes import Watch, starts_of, summary
from aileron.cell.start import Root
from aileron.cell.terminal import streams_of_ours
from aileron.cell.tree import opened, opened_root
from aileron.home import Home
from aileron.launch.sights import EMPTY_STATE, Missing, Sights
from aileron_sandbox.cell.door import Cell
from aileron_sandbox.cell.policy import MAX_MASKED, CellPolicy
from aileron_sandbox.cell.stub import Stub
from aileron_sandbox.unavailable import JailUnavailable

if TYPE_CHECKING:
    from aileron.cell.publish import Publish, Published
    from aileron.cell.relays import Door

__all__ = ["CellLaunch", "LaunchSession", "make_missing", "run_in_cell"]

_TICK_S: Final = 0.02
"""Twice the longest step of the clock that file systems stamp by (CONFIG_HZ=100)."""


class CellLaunch(msgspec.Struct, frozen=True, kw_only=True):
    """What is started. `open_session` is called once, and may raise: then there is no agent."""

    sights: Sights
    is_overlay: bool
    publish: tuple[Publish, ...]
    home: Home
    open_session: Callable[[], LaunchSession]


class LaunchSession(msgspec.Struct, frozen=True):
    """The open session of a launch. Its token is a secret, and not in its repr."""

    id: str
    token: str

    def __repr__(self) -> str:
        return f"LaunchSession(id={self.id!r})"


def run_in_cell(launch: CellLaunch, stub: Stub, note: Callable[[str], None]) -> int:
    """The agent's exit code, or 128 and the signal that ended it. OSError if it cannot be executed; JailUnavailable.

    `stub` is the process that will be the cell; whoever started it closes it.
    """
    sights = launch.sights
    if make_missing(sights.missing):
        time.sleep(_TICK_S)  # or what was made here would be among what the agent changed (aileron/cell/changes.py)
    with contextlib.ExitStack() as undo:
        published = [undo.enter_context(one) for one in _published(launch.publish)]
        starts = starts_of([Root(path, only) for path, only in sights.roots], launch.home.cells)
        policy = _without_sockets(sights.policy, [path for start in starts for path in start.sockets()])
        session = None
        if launch.is_overlay:
            from aileron.cell.overlay import prepare_overlay

            session = launch.open_session()  # what an overlay keeps lies in the session's folder
            overlay = prepare_overlay(launch.home.cells / session.id, sights.project)
            policy = msgspec.structs.replace(policy, overlay=overlay)
        streams = streams_of_ours()
        command = [sights.program, *sights.arguments]
        with Cell.prepare(policy, command, sights.environment, streams, stub=stub) as cell:
            # 20 ms, while the cell is made:
            session = session or launch.open_session()
            watch = Watch.begin(starts, launch.home.cells / session.id)
            undo.callback(watch.abandon)
            from aileron.cell.attend import attend

            cell.wait()
            ending = attend(cell, streams, _doors(launch.home, session), published)
        if ending.why is not None:
            note(f"the cell has ended: {ending.why}")
        for line in summary(watch.finish()):
            note(line)
    return ending.exit_code


def _published(ports: tuple[Publish, ...]) -> Iterator[Published]:
    """Each is taken before the agent starts: who asked for a port that another program has is told at once."""
    if ports:
        from aileron.cell.publish import Published

        yield from map(Published, ports)


def _without_sockets(policy: CellPolicy, sockets: list[str]) -> CellPolicy:
    """They are covered: whoever could connect to one would speak to a program outside. The kernel has no rule for their paths."""
    if len(policy.masked) + len(sockets) > MAX_MASKED:
        raise JailUnavailable(
            f"{len(sockets)} sockets lie in what the agent can write, and each has to be covered",
            f"remove those that nobody listens at; at most {MAX_MASKED} are covered",
        )
    return msgspec.structs.replace(policy, masked=(*policy.masked, *sockets))


def make_missing(missing: tuple[Missing, ...]) -> bool:
    """What the agent would make itself outside of a cell, for nobody else. Whether a file was made. OSError.

    Paths were resolved before, so a link on the way is one that somebody put there since: it is not followed.
    """
    has_made = False
    for one in missing:
        with _made_directory(one.path if one.is_directory else os.path.dirname(one.path)) as directory:
            if not one.is_directory:
                with contextlib.suppress(FileExistsError):
                    flags = os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC
                    descriptor = os.open(os.path.basename(one.path), flags, 0o600, dir_fd=directory)
                    with open(descriptor, "wb") as made:
                        made.write(EMPTY_STATE)
                    has_made = True
    return has_made


@contextlib.contextmanager
def _made_directory(path: str) -> Iterator[int]:
    """Its descriptor; what is missing of it is made, each below the one before."""
    there, names = path, list[str]()
    while not os.path.lexists(there):
        there, name = os.path.split(there)
        names.append(name)
    with contextlib.ExitStack() as folders:
        directory = folders.enter_context(opened_root(there))
        for name in reversed(names):
            with contextlib.suppress(FileExistsError):
                os.mkdir(name, 0o700, dir_fd=directory)
            directory = folders.enter_context(opened(name, directory))
        yield directory


def _doors(home: Home, session: LaunchSession) -> list[Door]:
    """Where what comes out of the cell leads, by the names of its listeners."""
    from aileron.cell.relays import Door, unix_target

    cell = unix_target(str(home.cell_socket))
    return [
        Door("mcp", unix_target(str(home.mcp_socket)), _preamble(session.token)),
        Door("agent", cell),
        Door("gateway", cell),
        Door("tunnel", unix_target(str(home.tunnel_socket))),
    ]


def _preamble(token: str) -> bytes:
    """With what our own relay begins (aileron/mcp/relay.py): a notification that says whose session this is."""
    message = {"jsonrpc": "2.0", "method": "notifications/aileron/session", "params": {"token": token}}
    return json.dumps(message, separators=(",", ":")).encode() + b"\n"
