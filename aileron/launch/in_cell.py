"""The run of an agent in a cell, in the foreground of this process's terminal, from before its start until every
process in the cell has ended.

Runs in the command, outside the cell. The daemon uses this process to recognize requests that come through the
session's doors. In order: the agent's missing files are made; the names in its writable places are read; the cell is
prepared, and meanwhile the session opened; the doors are opened; the agent starts; at its end the cell is closed, and
its changes are reported.

Rules
- The session's token never enters a cell: it is in the preamble of one door, which is sent outside the cell.
- No program is executed before all doors are open, and changes are not examined before the cell is closed.

Source: docs/adr/0062-the-agent-in-a-cell.md. Not here: what the agent sees (cell_spec.py), the session (aileron/cli), the
daemon's end of the doors.
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
from aileron.launch.cell_spec import EMPTY_STATE, CellSpec, Missing
from aileron_sandbox.cell.door import Cell
from aileron_sandbox.cell.policy import MAX_MASKED, CellPolicy
from aileron_sandbox.cell.stub import Stub
from aileron_sandbox.unavailable import JailUnavailable

if TYPE_CHECKING:
    from aileron.cell.publish import Publish, Published
    from aileron.cell.relays import Door

__all__ = ["CellLaunch", "LaunchSession", "make_missing", "run_in_cell"]

_TICK_S: Final = 0.02
"""Seconds to wait so that later changes to files get a later time: twice the longest step of the clock that stamps
files (CONFIG_HZ=100).
"""


class CellLaunch(msgspec.Struct, frozen=True, kw_only=True):
    """The description of a launch in a cell. `open_session` is called only once, and may raise; then no agent is started."""

    spec: CellSpec
    is_overlay: bool
    publish: tuple[Publish, ...]
    home: Home
    open_session: Callable[[], LaunchSession]


class LaunchSession(msgspec.Struct, frozen=True):
    """The open session of a launch. Its token is a secret, and is not in the repr."""

    id: str
    token: str

    def __repr__(self) -> str:
        return f"LaunchSession(id={self.id!r})"


def run_in_cell(launch: CellLaunch, stub: Stub, note: Callable[[str], None]) -> int:
    """Run the agent, and return its exit status, or 128 plus the number of the signal that ended it. Raises OSError
    if the agent cannot be executed, and JailUnavailable if the cell cannot be made.

    `stub` is the process that will become the cell; the caller closes it.
    """
    spec = launch.spec
    if make_missing(spec.missing):
        time.sleep(_TICK_S)  # or the files made here would count as the agent's changes (aileron/cell/changes.py)
    with contextlib.ExitStack() as undo:
        published = [undo.enter_context(port) for port in _published(launch.publish)]
        starts = starts_of([Root(path, only) for path, only in spec.roots], launch.home.cells)
        policy = _without_sockets(spec.policy, [path for start in starts for path in start.sockets()])
        session = None
        if launch.is_overlay:
            from aileron.cell.overlay import prepare_overlay

            session = launch.open_session()  # an overlay keeps its files in the session's folder
            overlay = prepare_overlay(launch.home.cells / session.id, spec.project)
            policy = msgspec.structs.replace(policy, overlay=overlay)
        streams = streams_of_ours()
        command = [spec.program, *spec.arguments]
        with Cell.prepare(policy, command, spec.environment, streams, stub=stub) as cell:
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
    """Yield the ports of the cell that are published on this machine. Each is opened before the agent starts, so that a
    port in use is an error at once.
    """
    if ports:
        from aileron.cell.publish import Published

        yield from map(Published, ports)


def _without_sockets(policy: CellPolicy, sockets: list[str]) -> CellPolicy:
    """Return the policy with these sockets masked, because an agent could reach programs outside by them, and no
    kernel rule forbids that. Raises JailUnavailable if there are too many.
    """
    if len(policy.masked) + len(sockets) > MAX_MASKED:
        raise JailUnavailable(
            f"{len(sockets)} sockets lie in what the agent can write, and each has to be covered",
            f"remove those that nobody listens at; at most {MAX_MASKED} are covered",
        )
    return msgspec.structs.replace(policy, masked=(*policy.masked, *sockets))


def make_missing(missing: tuple[Missing, ...]) -> bool:
    """Make the missing files and directories that the agent would make itself outside a cell, readable by this user
    only. Return whether a file was made. Raises OSError if one cannot be made.

    Paths were resolved before, so a link in a path was put there afterwards, and is not followed.
    """
    has_made = False
    for place in missing:
        with _made_directory(place.path if place.is_directory else os.path.dirname(place.path)) as directory:
            if not place.is_directory:
                with contextlib.suppress(FileExistsError):
                    flags = os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC
                    descriptor = os.open(os.path.basename(place.path), flags, 0o600, dir_fd=directory)
                    with open(descriptor, "wb") as made:
                        made.write(EMPTY_STATE)
                    has_made = True
    return has_made


@contextlib.contextmanager
def _made_directory(path: str) -> Iterator[int]:
    """Make a directory with its missing parents, each opened through its parent's descriptor, and yield the
    directory's descriptor.
    """
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
    """Return the forwarding targets for the cell's listeners: for each listener by name, the daemon's socket to which
    its connections are forwarded.
    """
    from aileron.cell.relays import Door, unix_target

    cell = unix_target(str(home.cell_socket))
    return [
        Door("mcp", unix_target(str(home.mcp_socket)), _preamble(session.token)),
        Door("agent", cell),
        Door("gateway", cell),
        Door("tunnel", unix_target(str(home.tunnel_socket))),
    ]


def _preamble(token: str) -> bytes:
    """Return the bytes that begin each MCP connection from the cell: a notification with the session's token, as
    Aileron's relay sends it (aileron/mcp/relay.py).
    """
    message = {"jsonrpc": "2.0", "method": "notifications/aileron/session", "params": {"token": token}}
    return json.dumps(message, separators=(",", ":")).encode() + b"\n"
