"""`aileron connector`: commands that build, install and check connectors. connector.py has the commands that only read."""

from __future__ import annotations

import os
import shlex
from pathlib import Path
from typing import Annotated

from aileron.api.body import Body
from aileron.api.connectors import (
    ConnectorList,
    InstallConnector,
    InstalledConnector,
    Update,
    UpdateList,
)
from aileron.api.fetches import FetchRequest
from aileron.cli import output
from aileron.cli.commands.connector import called
from aileron.cli.commands.done import tell_done, tell_packed
from aileron.cli.commands.options import AsJson, ClientId, ClientSecretFile, Hosts, Logins, PassphraseFile, Region, Yes
from aileron.cli.decision_dialogue import carry_through
from aileron.cli.declared import Argument, Exit, Option
from aileron.cli.own_files import write_whole
from aileron.cli.problem import OK, UNREACHED, Problem, local_work, tell
from aileron.cli.prompts import passphrase_from
from aileron.cli.published import fetched, given_up, installed, is_published
from aileron.cli.publisher import application, hosts, logins
from aileron.cli.supervisor import Supervisor
from aileron.model.names import OnConflict
from aileron.model.visible import visible

__all__ = ["build", "check", "install", "verify"]


_CHECK_S = 60.0
"""Seconds to wait for a request for which the daemon asks every forge, or hashes every installed connector."""
_MISMATCH = 9


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
    from aileron.registry.connector_build import build as built_from
    from aileron.registry.content import content_hash
    from aileron.registry.manifest import parse_connector_manifest

    command = "aileron connector build"
    bound_hosts, bound_application = hosts(host, command), application(client_id, client_secret_file, command)
    bound_logins = logins(login, command)
    with local_work():
        built = built_from(directory, bound_hosts, bound_application, logins=bound_logins, region=region)
    pin = content_hash(built.connector, built.manifest)
    write_whole(file, built.archive)
    if as_json:
        left_out = [{"path": omission.path, "reason": omission.reason} for omission in built.left_out]
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
        if "installed" in problem.details:  # the same version with other bytes is installed
            problem.fix = shlex.join(["aileron", "connector", "install", target, "--replace"])
        raise
    raise Exit(code)


def _install(
    supervisor: Supervisor, target: str, pin: str | None, on_conflict: OnConflict, *, yes: bool, as_json: bool
) -> int:
    if is_published(target):
        return _install_published(supervisor, target, pin, on_conflict, yes=yes, as_json=as_json)
    path = Path(target)
    if not os.path.exists(path):  # not Path.exists, which raises if a directory above cannot be searched
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
    if job.consent is None:
        given_up(supervisor, job)
        output.note(f"{visible(name)} is already installed with this content")
        return OK
    options = [] if on_conflict == "refuse" else [f"--{on_conflict.replace('_', '-')}"]
    again = " ".join(["aileron connector install", name, *options, *([] if pin is None else ["--hash", pin])])
    return installed(supervisor, job, again=again, yes=yes, as_json=as_json)


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
            [(update.name, update.version, update.newest or "-", _note(update)) for update in updates],
            folds=("NAME",),
            empty="no installed action uses published connectors",
        )
    unchecked = sum(update.problem is not None for update in updates)
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
    output.print_list(
        found,
        ("CONNECTOR", "HASH", "STATE"),
        (
            (called(connector), output.short_hash(connector.hash), connector.problem or "matches its hash")
            for connector in found.connectors
        ),
        as_json=as_json,
        folds=("CONNECTOR",),
        empty="no connectors installed",
    )
    if any(connector.problem for connector in found.connectors):
        raise Exit(_MISMATCH)
