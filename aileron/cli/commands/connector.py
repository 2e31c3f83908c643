"""`aileron connector`: the programs that know one service each.

`build` runs here, on the author's files, without a daemon; the rest asks it.
"""

from __future__ import annotations

import os
import shlex
from pathlib import Path
from typing import Annotated

import typer

from aileron.api.body import Body
from aileron.api.connectors import (
    ConnectorEntry,
    ConnectorList,
    InstallConnector,
    InstalledConnector,
    RemoveUnused,
    Update,
    UpdateList,
)
from aileron.api.daemon import Removed
from aileron.api.fetches import FetchRequest
from aileron.cli import output
from aileron.cli.commands.completion import connector_names
from aileron.cli.commands.done import print_connector, tell_done, tell_packed
from aileron.cli.commands.options import AsJson, ClientId, ClientSecretFile, Hosts, PassphraseFile, Yes
from aileron.cli.decision_dialogue import carry_through
from aileron.cli.problem import OK, UNREACHED, Problem, local_work, tell
from aileron.cli.prompts import ask_now, can_ask, passphrase_from
from aileron.cli.published import fetched, given_up, installed, is_published
from aileron.cli.publisher import application, hosts
from aileron.cli.supervisor import Supervisor, path_of
from aileron.model.names import OnConflict
from aileron.model.visible import visible

__all__ = ["build", "check", "install", "list_", "remove", "show", "verify"]

_CHECK_S = 60.0
"""Every forge is asked, or every byte hashed."""
_MISMATCH = 9
_LEAST_DIGITS = 6
"""Of a hash on the command line: fewer are a slip of the finger."""

Which = Annotated[
    str,
    typer.Argument(
        metavar="CONNECTOR",
        help="Its full name, name@version, or hash; the first digits will do.",
        autocompletion=connector_names,
    ),
]


def build(
    directory: Annotated[Path, typer.Argument(metavar="DIR", help="Where manifest.toml and the program are.")],
    host: Hosts = None,
    client_id: ClientId = None,
    client_secret_file: ClientSecretFile = None,
    file: Annotated[Path, typer.Option("-o", "--output", metavar="FILE", help="The archive to write.")] = Path(
        "aileron.tar.gz"
    ),
    as_json: AsJson = False,
) -> None:
    """Build an archive, without a daemon.

    The same sources give the same bytes everywhere; the archive can be installed or published.
    """
    from aileron.registry.build import build as built_from
    from aileron.registry.content import content_hash
    from aileron.registry.manifest import parse_connector_manifest

    command = "aileron connector build"
    bound_hosts, bound_application = hosts(host, command), application(client_id, client_secret_file, command)
    with local_work():
        built = built_from(directory, bound_hosts, bound_application)
    pin = content_hash(built.connector, built.manifest)
    _write_whole(file, built.archive)
    if as_json:
        left_out = [{"path": one.path, "reason": one.reason} for one in built.left_out]
        output.print_json(
            {
                "file": str(file),
                "hash": pin,
                "bytes": len(built.archive),
                "data": list(built.data),
                "left_out": left_out,
                "left_out_unnamed": built.unnamed,
            }
        )
        return
    operations = parse_connector_manifest(built.manifest, file="manifest.toml").operations
    recorded = "not recorded: only a run can tell" if operations is None else len(operations)
    output.print_facts([("file", str(file)), ("hash", pin), ("bytes", len(built.archive)), ("operations", recorded)])
    tell_packed(built)
    output.note("unsigned")


def install(
    target: Annotated[
        str,
        typer.Argument(
            metavar="NAME@VERSION|DIR|ARCHIVE", help="What is published, a source directory, or what `build` made."
        ),
    ],
    pin: Annotated[
        str | None, typer.Option("--hash", metavar="HASH", help="Take it only if this is its hash, sha256:….")
    ] = None,
    replace: Annotated[
        bool, typer.Option("--replace", help="Take the place of other bytes of the same version.")
    ] = False,
    keep_both: Annotated[
        bool, typer.Option("--keep-both", help="Stand beside other bytes of the same version.")
    ] = False,
    yes: Yes = False,
    passphrase_file: PassphraseFile = None,
    as_json: AsJson = False,
) -> None:
    """Install a connector, and show what it may reach.

    What is published is fetched, shown, and installed when you say so. Where an approver exists it waits for their signature,
    which is asked for at a terminal.
    """
    if replace and keep_both:
        raise Problem.usage("--replace and --keep-both exclude each other", fix="aileron connector install --help")
    on_conflict: OnConflict = "replace" if replace else "keep_both" if keep_both else "refuse"
    supervisor = Supervisor(passphrase=passphrase_from(passphrase_file))
    try:
        code = _install(supervisor, target, pin, on_conflict, yes=yes, as_json=as_json)
    except Problem as problem:
        if "installed" in problem.details:  # that version, with other bytes
            problem.fix = shlex.join(["aileron", "connector", "install", target, "--replace"])
        raise
    raise typer.Exit(code)


def _install(
    supervisor: Supervisor, target: str, pin: str | None, on_conflict: OnConflict, *, yes: bool, as_json: bool
) -> int:
    if is_published(target):
        return _install_published(supervisor, target, pin, on_conflict, yes=yes, as_json=as_json)
    path = Path(target)
    if not os.path.exists(path):  # and not Path.exists, which raises where a directory above may not be searched
        raise Problem.missing(f"{path}: there is no such file or directory")
    if pin is not None:
        raise Problem.usage("--hash is for what is fetched: NAME@VERSION", fix="aileron connector install --help")
    asked = InstallConnector(path=str(path.resolve()), on_conflict=on_conflict)
    answer = supervisor.change(InstalledConnector, "POST", "/v1/connectors", asked, wait_s=30.0)
    return carry_through(supervisor, answer, tell_done, yes=yes, as_json=as_json)


def _install_published(
    supervisor: Supervisor, name: str, pin: str | None, on_conflict: OnConflict, *, yes: bool, as_json: bool
) -> int:
    job = fetched(supervisor, FetchRequest(what="connector", name=name, hash=pin, on_conflict=on_conflict))
    if not job.consents:
        given_up(supervisor, job)
        output.note(f"{visible(name)} is installed already, with these bytes")
        return OK
    options = [] if on_conflict == "refuse" else [f"--{on_conflict.replace('_', '-')}"]
    again = " ".join(["aileron connector install", name, *options, *([] if pin is None else ["--hash", pin])])
    return installed(supervisor, job, again=again, yes=yes, as_json=as_json)


def list_(as_json: AsJson = False) -> None:
    """List the installed connectors."""
    found = Supervisor().fetch(ConnectorList, "GET", "/v1/connectors")
    if as_json:
        output.print_json(found)
        return
    output.print_table(
        ("NAME", "VERSION", "HASH", "REACHES", "CREDENTIAL"),
        [
            (
                entry.name or "broken",
                entry.version or None,
                output.short_hash(entry.hash),
                ", ".join(entry.hosts or []) or entry.problem or "nothing",
                entry.credential.kind if entry.credential else "none",
            )
            for entry in found.connectors
        ],
        folds=("NAME", "REACHES"),
        empty="no connector is installed\n  fix: aileron connector install NAME@VERSION",
    )


def show(connector: Which, as_json: AsJson = False) -> None:
    """Show one connector: what it may reach, use and spend."""
    entry = _only(Supervisor(), connector)
    if as_json:
        output.print_json(entry)
    else:
        print_connector(entry)


def check(
    prerelease: Annotated[
        bool, typer.Option("--include-prerelease", help="Recommend what is not released yet, too.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Say which newer versions there are of what your actions use.

    Nothing is fetched and nothing is changed; `aileron action update NAME` does that.

    Exit code 7 if none of them could be checked.
    """
    query = "?prerelease=true" if prerelease else ""
    updates = Supervisor().fetch(UpdateList, "GET", f"/v1/connectors/updates{query}", wait_s=_CHECK_S).updates
    if as_json:
        for update in updates:
            output.print_json(update)
    else:
        output.print_table(
            ("NAME", "HERE", "NEWEST", "NOTE"),
            [(one.name, one.version, one.newest or "-", _note(one)) for one in updates],
            folds=("NAME",),
            empty="no installed action uses anything that is published",
        )
    unchecked = sum(one.problem is not None for one in updates)
    if unchecked and unchecked == len(updates):
        what = f"none of the {unchecked} could be checked" if unchecked > 1 else "it could not be checked"
        raise typer.Exit(
            tell(
                Problem(
                    f"{what}: whether there is anything newer is not known",
                    exit_code=UNREACHED,
                    name="network_error",
                    why=updates[0].problem,
                    fix="aileron connector check --include-prerelease" if prerelease else "aileron connector check",
                )
            )
        )
    if unchecked:
        output.note(f"{unchecked} of {len(updates)} could not be checked")


def _note(update: Update) -> str:
    if update.problem:
        return f"could not check: {update.problem}"
    if update.prerelease:
        return f"{update.prerelease} is not released yet"
    return "" if update.newest else "up to date"


def verify(as_json: AsJson = False) -> None:
    """Read and hash every byte of what is installed again: exit code 9 where something is not as it was pinned."""
    found = Supervisor().fetch(ConnectorList, "POST", "/v1/connectors/verify", Body(), wait_s=_CHECK_S)
    if as_json:
        output.print_json(found)
    else:
        output.print_table(
            ("CONNECTOR", "HASH", "STATE"),
            [
                (_called(one), output.short_hash(one.hash), one.problem or "as it was pinned")
                for one in found.connectors
            ],
            folds=("CONNECTOR",),
            empty="no connector is installed",
        )
    if any(one.problem for one in found.connectors):
        raise typer.Exit(_MISMATCH)


def remove(
    connector: Annotated[
        str | None,
        typer.Argument(
            metavar="CONNECTOR",
            help="Its full name, name@version, or hash; the first digits will do.",
            autocompletion=connector_names,
        ),
    ] = None,
    unused: Annotated[bool, typer.Option("--unused", help="All that nothing is pinned to.")] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="With --unused: do not ask.")] = False,
) -> None:
    """Remove a connector, or all that nothing needs.

    Actions that are pinned to it no longer run. What an action, a question that waits or a run is pinned to is not unused.
    """
    if (connector is None) == (not unused):
        raise Problem.usage("name a connector, or say --unused", fix="aileron connector remove --help")
    supervisor = Supervisor()
    if connector is None:
        _remove_unused(supervisor, yes=yes)
        return
    entry = _only(supervisor, connector)
    supervisor.fetch(Removed, "DELETE", path_of("v1", "connectors", entry.hash))
    output.note(f"removed {visible(_called(entry))}")


def _remove_unused(supervisor: Supervisor, *, yes: bool) -> None:
    route = "/v1/connectors/remove-unused"
    would = supervisor.fetch(ConnectorList, "POST", route, RemoveUnused(dry_run=True)).connectors
    if not would:
        output.note("every connector is needed")
        return
    for entry in would:
        output.note(f"nothing needs {visible(_called(entry))}  {output.short_hash(entry.hash)}")
    if not yes and not can_ask():
        raise Problem.usage("there is no terminal to ask at", fix="aileron connector remove --unused --yes")
    if not yes and (ask_now("Remove? [y/N] ") or "").lower() not in ("y", "yes"):
        raise Problem("nothing is removed", exit_code=6, name="cancelled")
    for entry in supervisor.fetch(ConnectorList, "POST", route, RemoveUnused()).connectors:
        output.note(f"removed {visible(_called(entry))}")


def _only(supervisor: Supervisor, wanted: str) -> ConnectorEntry:
    """The one installed connector that `wanted` means."""
    installed = supervisor.fetch(ConnectorList, "GET", "/v1/connectors").connectors
    found = [entry for entry in installed if _is_meant(wanted, entry)]
    if len(found) == 1:
        return found[0]
    if not found:
        raise Problem.missing(f"no connector {wanted!r} is installed", fix="aileron connector list")
    raise Problem.usage(
        f"{wanted!r} names {len(found)} connectors; give the hash",
        why=", ".join(f"{_called(entry)} is {entry.hash}" for entry in found),
    )


def _is_meant(wanted: str, entry: ConnectorEntry) -> bool:
    digits = wanted.removeprefix("sha256:")
    if len(digits) >= _LEAST_DIGITS and entry.hash.startswith(f"sha256:{digits}"):
        return True
    return wanted in (entry.name, f"{entry.name}@{entry.version}")


def _called(entry: ConnectorEntry) -> str:
    return f"{entry.name}@{entry.version}" if entry.name else entry.hash


def _write_whole(file: Path, data: bytes) -> None:
    """All of it or nothing: an archive cut short would be installed as something else."""
    unfinished = file.with_name(f".{file.name}.{os.getpid()}.tmp")
    try:
        try:
            unfinished.write_bytes(data)
            unfinished.replace(file)
        finally:
            unfinished.unlink(missing_ok=True)
    except OSError as error:
        raise Problem.usage(f"{file} cannot be written: {error.strerror or error}") from None
