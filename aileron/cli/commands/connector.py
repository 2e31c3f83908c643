"""`aileron connector`: the programs that know one service each.

`build` runs here, on the author's files, without a daemon; the rest asks it.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated, Any

import typer

from aileron.cli import output
from aileron.cli.commands.done import print_connector, tell_done
from aileron.cli.commands.options import AsJson, PassphraseFile, Yes
from aileron.cli.deciding import carry_through
from aileron.cli.problem import Problem, local_work
from aileron.cli.prompts import passphrase_from, text_in
from aileron.cli.supervisor import Supervisor, path_of
from aileron.model.visible import visible

__all__ = ["build", "install", "list_", "remove", "show"]

_LEAST_DIGITS = 6
"""Of a hash on the command line: fewer are a slip of the finger."""

Which = Annotated[
    str, typer.Argument(metavar="CONNECTOR", help="Its full name, name@version, or hash; the first digits will do.")
]


def build(
    directory: Annotated[Path, typer.Argument(metavar="DIR", help="Where manifest.toml and the program are.")],
    host: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME:PORT", help='Replaces hosts = ["bound-at-build"]; may be given again.'),
    ] = None,
    client_id: Annotated[
        str | None,
        typer.Option(metavar="ID", help='Replaces client_id = "bound-at-release": your application at the provider.'),
    ] = None,
    client_secret_file: Annotated[
        str | None,
        typer.Option(metavar="FILE", help='Where what replaces client_secret = "bound-at-release" is read from.'),
    ] = None,
    file: Annotated[Path, typer.Option("-o", "--output", metavar="FILE", help="The archive to write.")] = Path(
        "aileron.tar.gz"
    ),
    as_json: AsJson = False,
) -> None:
    """Build an archive, without a daemon.

    The same sources give the same bytes everywhere; the archive can be installed or published.
    """
    from aileron.model.names import HostPort
    from aileron.model.secret import Secret
    from aileron.registry.build import Application
    from aileron.registry.build import build as built_from
    from aileron.registry.content import content_hash

    try:
        hosts = [HostPort.parse(name) for name in host or []]
    except ValueError as error:
        raise Problem.usage(f"--host {error}", fix="aileron connector build --help") from None
    if client_secret_file is not None and client_id is None:
        raise Problem.usage("--client-secret-file without --client-id", fix="aileron connector build --help")
    application = None
    if client_id is not None:
        secret = None if client_secret_file is None else text_in("--client-secret-file", client_secret_file)
        application = Application(client_id=client_id, client_secret=Secret(secret.encode()) if secret else None)
    with local_work():
        built = built_from(directory, hosts, application)
    pin = content_hash(built.connector, built.manifest)
    _write_whole(file, built.archive)
    if as_json:
        output.print_json({"file": str(file), "hash": pin, "bytes": len(built.archive)})
        return
    output.print_facts([("file", str(file)), ("hash", pin), ("bytes", len(built.archive))])
    output.note("unsigned")


def install(
    path: Annotated[Path, typer.Argument(metavar="DIR|ARCHIVE", help="A source directory, or what `build` made.")],
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

    Where an approver exists it waits for their signature, which is asked for at a terminal.
    """
    if replace and keep_both:
        raise Problem.usage("--replace and --keep-both exclude each other", fix="aileron connector install --help")
    if not os.path.exists(path):  # and not Path.exists, which raises where a directory above may not be searched
        raise Problem.missing(f"{path}: there is no such file or directory")
    asked = {"path": str(path.resolve())}
    if replace or keep_both:
        asked["on_conflict"] = "replace" if replace else "keep_both"
    supervisor = Supervisor(passphrase=passphrase_from(passphrase_file))
    answer = supervisor.ask("POST", "/v1/connectors", asked, wait_s=30.0)
    raise typer.Exit(carry_through(supervisor, answer, tell_done, kind="connector", yes=yes, as_json=as_json))


def list_(as_json: AsJson = False) -> None:
    """List the installed connectors."""
    connectors = Supervisor().ask("GET", "/v1/connectors")["connectors"]
    if as_json:
        output.print_json({"connectors": connectors})
        return
    output.print_table(
        ("NAME", "VERSION", "HASH", "REACHES", "CREDENTIAL"),
        [
            (
                entry.get("name") or "broken",
                entry.get("version"),
                output.short_hash(entry.get("hash")),
                ", ".join(entry.get("hosts") or []) or entry.get("problem") or "nothing",
                (entry.get("credential") or {}).get("kind", "none"),
            )
            for entry in connectors
        ],
        folds=("NAME", "REACHES"),
        empty="no connector is installed\n  fix: aileron connector install DIR",
    )


def show(connector: Which, as_json: AsJson = False) -> None:
    """Show one connector: what it may reach, use and spend."""
    entry = _only(Supervisor(), connector)
    if as_json:
        output.print_json(entry)
    else:
        print_connector(entry)


def remove(connector: Which) -> None:
    """Remove a connector.

    Actions that are pinned to it no longer run.
    """
    supervisor = Supervisor()
    entry = _only(supervisor, connector)
    supervisor.ask("DELETE", path_of("v1", "connectors", str(entry["hash"])))
    output.note(f"removed {visible(_called(entry))}")


def _only(supervisor: Supervisor, wanted: str) -> dict[str, Any]:
    """The one installed connector that `wanted` means."""
    connectors: list[dict[str, Any]] = supervisor.ask("GET", "/v1/connectors")["connectors"]
    found = [entry for entry in connectors if _is_meant(wanted, entry)]
    if len(found) == 1:
        return found[0]
    if not found:
        raise Problem.missing(f"no connector {wanted!r} is installed", fix="aileron connector list")
    raise Problem.usage(
        f"{wanted!r} names {len(found)} connectors; give the hash",
        why=", ".join(f"{_called(entry)} is {entry['hash']}" for entry in found),
    )


def _is_meant(wanted: str, entry: dict[str, Any]) -> bool:
    digits = wanted.removeprefix("sha256:")
    if len(digits) >= _LEAST_DIGITS and str(entry.get("hash")).startswith(f"sha256:{digits}"):
        return True
    return wanted in (entry.get("name"), f"{entry.get('name')}@{entry.get('version')}")


def _called(entry: dict[str, Any]) -> str:
    return f"{entry['name']}@{entry['version']}" if entry.get("name") else str(entry["hash"])


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
