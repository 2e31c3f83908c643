"""The options of `aileron launch` about cells, declared once, and their combination with the settings.

Runs in commands. It decides nothing: cell_spec.py defines what the agent sees because of an option, and host_pattern.py how a
host is written. An invalid option ends the command before anything starts.

Source: docs/reference/cli.md, docs/reference/configuration.md#launch. Not here: the launch itself (launch_cell.py).
"""

from __future__ import annotations

import dataclasses
import os
from typing import TYPE_CHECKING, Annotated

from aileron.cli.declared import Option
from aileron.cli.problem import Problem, parsed

if TYPE_CHECKING:
    from aileron.api.daemon import LaunchedCell
    from aileron.cell.publish import Publish
    from aileron.launch.cell_spec import CellOptions

__all__ = [
    "AllowEnv",
    "AllowHost",
    "AllowRead",
    "AllowWrite",
    "CellWishes",
    "Explain",
    "Jail",
    "OverlayProject",
    "PublishPort",
    "ReadOnly",
]

_FIX = "aileron launch --help"
_MIB = 1 << 20

Jail = Annotated[
    bool | None,
    Option("--jail/--no-jail", help="Start the agent in a cell, or without one. Default: the setting launch.jail."),
]
ReadOnly = Annotated[
    bool, Option("--read-only", help="In a cell, show the project without letting the agent change it.")
]
AllowRead = Annotated[
    list[str] | None,
    Option("--allow-read", metavar="PATH", help="In a cell, let the agent read PATH. Repeatable."),
]
AllowWrite = Annotated[
    list[str] | None,
    Option("--allow-write", metavar="PATH", help="In a cell, let the agent read and change PATH. Repeatable."),
]
AllowHost = Annotated[
    list[str] | None,
    Option(
        "--allow-host",
        metavar="HOST",
        help="In a cell, let the agent reach HOST: NAME, NAME:PORT, *.NAME or a preset. Repeatable.",
    ),
]
AllowEnv = Annotated[
    list[str] | None,
    Option("--allow-env", metavar="NAME", help="In a cell, pass the environment variable NAME. Repeatable."),
]
PublishPort = Annotated[
    list[str] | None,
    Option(
        "--publish", metavar="PORT", help="Make a port of the cell reachable on this machine's loopback. Repeatable."
    ),
]
OverlayProject = Annotated[
    bool,
    Option("--overlay", help="In a cell, keep changes of the project aside until you apply or discard them."),
]
Explain = Annotated[
    bool, Option("--explain", help="Show what the agent would see and reach in a cell, and start nothing.")
]


@dataclasses.dataclass(frozen=True, kw_only=True)
class CellWishes:
    """The options of `aileron launch` that configure the agent's cell."""

    read_only: bool = False
    allow_read: tuple[str, ...] = ()
    allow_write: tuple[str, ...] = ()
    allow_host: tuple[str, ...] = ()
    allow_env: tuple[str, ...] = ()
    publish: tuple[str, ...] = ()
    overlay: bool = False

    def check(self, *, is_in_cell: bool) -> None:
        """Check that the options about the cell are valid and can be used together.

        Raises Problem for an invalid option. Without a cell, raises Problem for any option, because the option would
        protect nothing.
        """
        given = [f"--{field.name.replace('_', '-')}" for field in dataclasses.fields(self) if getattr(self, field.name)]
        if given and not is_in_cell:
            raise Problem.usage(f"{given[0]} requires --jail: without a cell it has no effect", fix="add --jail")
        if self.read_only and self.overlay:
            raise Problem.usage("--read-only and --overlay cannot be used together", fix=_FIX)
        for name in self.allow_env:
            if not name or "=" in name or "\0" in name:
                raise Problem.usage(f"--allow-env: {name!r} is not the name of a variable", fix="--allow-env NAME")
        _ = self.hosts(None), self.published()

    def hosts(self, settings: LaunchedCell | None) -> list[str]:
        """Return the hosts that the cell can reach: those of the settings and the options, each once, with presets
        expanded. Raises Problem for an invalid host.
        """
        from aileron.model.host_pattern import parse_host_patterns
        from aileron.model.host_presets import HOST_PRESETS, resolved_hosts

        given = [*(() if settings is None else settings.allow_hosts), *self.allow_host]
        for host in given:
            if "." not in host and ":" not in host and host not in HOST_PRESETS:
                known = ", ".join(HOST_PRESETS)
                raise Problem.usage(
                    f"--allow-host: {host!r} is neither a host nor a preset; presets: {known}",
                    fix=f"for a host without a dot, add its port: --allow-host {host[:60]}:443",
                )
        fix = "--allow-host NAME[:PORT], *.NAME or a preset"
        return list(map(str, parsed("--allow-host:", parse_host_patterns, resolved_hosts(given), fix=fix)))

    def published(self) -> tuple[Publish, ...]:
        """Return the ports of the cell to publish. Raises Problem for an invalid port."""
        from aileron.cell.publish import parse_publish

        fix = "--publish PORT or --publish HOSTPORT:PORT"
        return tuple(parsed("--publish:", parse_publish, port, fix=fix) for port in self.publish)

    def options(self, settings: LaunchedCell | None) -> CellOptions:
        """Return the files, environment variables and limits of the cell: the settings in force, with the options added."""
        from aileron.launch.cell_spec import CellLimits, CellOptions

        read, write, environment = list[str](), list[str](), list[str]()
        limits = CellLimits()
        if settings is not None:
            read, write, environment = settings.allow_read, settings.allow_write, settings.allow_env
            limits = CellLimits(
                memory_bytes=settings.memory_mb * _MIB,
                processes=settings.processes,
                open_files=settings.open_files,
                file_bytes=settings.file_mb * _MIB,
                scratch_bytes=settings.scratch_mb * _MIB,
            )
        return CellOptions(
            read_only=self.read_only,
            allow_read=(*read, *map(_absolute, self.allow_read)),
            allow_write=(*write, *map(_absolute, self.allow_write)),
            allow_env=(*environment, *self.allow_env),
            overlay=self.overlay,
            limits=limits,
        )


def _absolute(path: str) -> str:
    return os.path.abspath(os.path.expanduser(path))
