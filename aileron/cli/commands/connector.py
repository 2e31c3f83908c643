"""`aileron connector`: the programs that know one service each.

`build` runs here, on the author's files, without a daemon; the rest asks it.
"""

from __future__ import annotations

import os
import shlex
from pathlib import Path
from typing import Annotated

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
from aileron.cli.commands.options import AsJson, ClientId, ClientSecretFile, Hosts, Logins, PassphraseFile, Region, Yes
from aileron.cli.decision_dialogue import carry_through
from aileron.cli.declared import Argument, Exit, Option
from aileron.cli.problem import OK, UNREACHED, Problem, local_work, tell
from aileron.cli.prompts import can_ask, is_yes, passphrase_from
from aileron.cli.published import fetched, given_up, installed, is_published
from aileron.cli.publisher import application, hosts, logins
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
    Argument(
        metavar="CONNECTOR",
        help="Full name, name@version, or hash (the first digits are enough).",
        autocompletion=connector_names,
    ),
]


def build(
    directory: Annotated[Path, Argument(metavar="DIR", help="Directory with manifest.toml and the program.")],
    host: Hosts = None,
    login: Logins = None,
    region: Region = None,
    client_id: ClientId = None,
    client_secret_file: ClientSecretFile = None,
    file: Annotated[Path, Option("-o", "--output", metavar="FILE", help="Archive to write.")] = Path("aileron.tar.gz"),
    as_json: AsJson = False,
) -> None:
    """Build an archive from a source directory, without a daemon.

    The build is reproducible: the same sources give the same bytes everywhere. You can install or publish the archive.
    """
    from aileron.registry.build import build as built_from
    from aileron.registry.content import content_hash
    from aileron.registry.manifest import parse_connector_manifest

    command = "aileron connector build"
    bound_hosts, bound_application = hosts(host, command), application(client_id, client_secret_file, command)
    bound_logins = logins(login, command)
    with local_work():
        built = built_from(directory, bound_hosts, bound_application, logins=bound_logins, region=region)
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
    recorded = "not recorded (known only by running)" if operations is None else len(operations)
    output.print_facts([("file", str(file)), ("hash", pin), ("bytes", len(built.archive)), ("operations", recorded)])
    tell_packed(built)
    output.note("unsigned")


def install(
    target: Annotated[
        str,
        Argument(
            metavar="NAME@VERSION|DIR|ARCHIVE", help="Published connector (NAME@VERSION), source directory, or archive."
        ),
    ],
    pin: Annotated[str | None, Option("--hash", metavar="HASH", help="Require this hash (sha256:…).")] = None,
    replace: Annotated[
        bool,
        Option("--replace", help="Replace an installed connector of the same version with different content."),
    ] = False,
    keep_both: Annotated[
        bool, Option("--keep-both", help="Keep both connectors if content differs at the same version.")
    ] = False,
    yes: Yes = False,
    passphrase_file: PassphraseFile = None,
    as_json: AsJson = False,
) -> None:
    """Install a connector.

    A published connector is fetched, shown, and installed after you confirm. If decisions are signed, the approver must sign at a
    terminal.
    """
    if replace and keep_both:
        raise Problem.usage("--replace and --keep-both cannot be used together", fix="aileron connector install --help")
    on_conflict: OnConflict = "replace" if replace else "keep_both" if keep_both else "refuse"
    supervisor = Supervisor(passphrase=passphrase_from(passphrase_file))
    try:
        code = _install(supervisor, target, pin, on_conflict, yes=yes, as_json=as_json)
    except Problem as problem:
        if "installed" in problem.details:  # that version, with other bytes
            problem.fix = shlex.join(["aileron", "connector", "install", target, "--replace"])
        raise
    raise Exit(code)


def _install(
    supervisor: Supervisor, target: str, pin: str | None, on_conflict: OnConflict, *, yes: bool, as_json: bool
) -> int:
    if is_published(target):
        return _install_published(supervisor, target, pin, on_conflict, yes=yes, as_json=as_json)
    path = Path(target)
    if not os.path.exists(path):  # and not Path.exists, which raises where a directory above may not be searched
        raise Problem.missing(f"no such file or directory: {path}")
    if pin is not None:
        raise Problem.usage(
            "--hash applies only to published connectors: NAME@VERSION", fix="aileron connector install --help"
        )
    asked = InstallConnector(path=str(path.resolve()), on_conflict=on_conflict)
    answer = supervisor.change(InstalledConnector, "POST", "/v1/connectors", asked, wait_s=30.0)
    return carry_through(supervisor, answer, tell_done, yes=yes, as_json=as_json)


def _install_published(
    supervisor: Supervisor, name: str, pin: str | None, on_conflict: OnConflict, *, yes: bool, as_json: bool
) -> int:
    job = fetched(supervisor, FetchRequest(what="connector", name=name, hash=pin, on_conflict=on_conflict))
    if not job.consents:
        given_up(supervisor, job)
        output.note(f"{visible(name)} is already installed with this content")
        return OK
    options = [] if on_conflict == "refuse" else [f"--{on_conflict.replace('_', '-')}"]
    again = " ".join(["aileron connector install", name, *options, *([] if pin is None else ["--hash", pin])])
    return installed(supervisor, job, again=again, yes=yes, as_json=as_json)


def list_(as_json: AsJson = False) -> None:
    """List installed connectors."""
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
        empty="no connectors installed\n  fix: aileron connector install NAME@VERSION",
    )


def show(connector: Which, as_json: AsJson = False) -> None:
    """Show a connector: its hosts, credential and limits."""
    entry = _only(Supervisor(), connector)
    if as_json:
        output.print_json(entry)
    else:
        print_connector(entry)


def check(
    prerelease: Annotated[bool, Option("--include-prerelease", help="Include prerelease versions.")] = False,
    as_json: AsJson = False,
) -> None:
    """Check for newer versions of your actions and connectors.

    Nothing is fetched or changed; to update, run `aileron action update NAME`. Exit code 7 means that no check succeeded.
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
            empty="no installed action uses published connectors",
        )
    unchecked = sum(one.problem is not None for one in updates)
    if unchecked and unchecked == len(updates):
        what = f"none of the {unchecked} checks succeeded" if unchecked > 1 else "the check failed"
        raise Exit(
            tell(
                Problem(
                    f"{what}: cannot tell whether a newer version exists",
                    exit_code=UNREACHED,
                    name="network_error",
                    why=updates[0].problem,
                    fix="aileron connector check --include-prerelease" if prerelease else "aileron connector check",
                )
            )
        )
    if unchecked:
        output.note(f"{unchecked} of {len(updates)} checks failed")


def _note(update: Update) -> str:
    if update.problem:
        return f"check failed: {update.problem}"
    if update.prerelease:
        return f"{update.prerelease} is a prerelease"
    return "" if update.newest else "up to date"


def verify(as_json: AsJson = False) -> None:
    """Verify the hashes of all installed connectors.

    Exit code 9 means that a connector has changed.
    """
    found = Supervisor().fetch(ConnectorList, "POST", "/v1/connectors/verify", Body(), wait_s=_CHECK_S)
    if as_json:
        output.print_json(found)
    else:
        output.print_table(
            ("CONNECTOR", "HASH", "STATE"),
            [
                (_called(one), output.short_hash(one.hash), one.problem or "matches its hash")
                for one in found.connectors
            ],
            folds=("CONNECTOR",),
            empty="no connectors installed",
        )
    if any(one.problem for one in found.connectors):
        raise Exit(_MISMATCH)


def remove(
    connector: Annotated[
        str | None,
        Argument(
            metavar="CONNECTOR",
            help="Full name, name@version, or hash (the first digits are enough).",
            autocompletion=connector_names,
        ),
    ] = None,
    unused: Annotated[bool, Option("--unused", help="Remove all connectors that nothing is pinned to.")] = False,
    yes: Annotated[bool, Option("--yes", "-y", help="With --unused, do not ask for confirmation.")] = False,
) -> None:
    """Remove a connector, or all unused connectors.

    Actions that are pinned to a removed connector stop working. A connector is in use if an action, a waiting approval or a run
    is pinned to it.
    """
    if (connector is None) == (not unused):
        raise Problem.usage("name a connector, or give --unused", fix="aileron connector remove --help")
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
        output.note("no unused connectors")
        return
    for entry in would:
        output.note(f"unused: {visible(_called(entry))}  {output.short_hash(entry.hash)}")
    if not yes and not can_ask():
        raise Problem.usage("no terminal to confirm at", fix="aileron connector remove --unused --yes")
    if not yes and not is_yes("Remove? [y/N] "):
        raise Problem("nothing removed", exit_code=6, name="cancelled")
    for entry in supervisor.fetch(ConnectorList, "POST", route, RemoveUnused()).connectors:
        output.note(f"removed {visible(_called(entry))}")


def _only(supervisor: Supervisor, wanted: str) -> ConnectorEntry:
    """The one installed connector that `wanted` means."""
    installed = supervisor.fetch(ConnectorList, "GET", "/v1/connectors").connectors
    found = [entry for entry in installed if _is_meant(wanted, entry)]
    if len(found) == 1:
        return found[0]
    if not found:
        from aileron.cli.near import did_you_mean

        why, fix = did_you_mean(wanted, [str(entry.name) for entry in installed]) or (None, None)
        raise Problem.missing(f"connector {wanted!r} is not installed", why=why, fix=fix or "aileron connector list")
    raise Problem.usage(
        f"{wanted!r} matches {len(found)} connectors; give the hash",
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
        raise Problem.usage(f"cannot write {file}: {error.strerror or error}") from None
