"""`aileron add`, `services`, `update` and `remove`: the services that come with Aileron, each in one command."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

from aileron.api.services import RemovedService, ServiceList, UpdateService
from aileron.cli import output
from aileron.cli.commands.options import AsJson, ClientId, ClientSecretFile, Hosts, Logins, PassphraseFile, Region, Yes
from aileron.cli.declared import Argument, Exit, Option
from aileron.cli.near import did_you_mean
from aileron.cli.problem import NOT_FOUND, OK, Problem
from aileron.cli.prompts import can_ask, is_yes, passphrase_from
from aileron.cli.supervisor import Supervisor, path_of
from aileron.model.visible import visible

if TYPE_CHECKING:
    from aileron.catalogue.service import Service

__all__ = ["add", "remove", "services", "update"]

_REMOVE_S = 60.0
"""Seconds to wait for the removal of a service, whose provider may have to revoke tokens first."""


def add(
    service: Annotated[
        str | None,
        Argument(metavar="SERVICE", help="Service to add, its URL, or a word to search for. Default: list them."),
    ] = None,
    address: Annotated[
        str | None,
        Argument(metavar="ADDRESS", help="Your mail address, for mail and caldav. Aileron finds the servers by it."),
    ] = None,
    identity: Annotated[
        str | None, Option("--as", metavar="NAME", help="Name for this account, such as work. Default: me.")
    ] = None,
    actions: Annotated[
        str | None,
        Option("--actions", metavar="reads|all|NAMES", help="Actions to add: those that only read, all, or these."),
    ] = None,
    host: Hosts = None,
    login: Logins = None,
    region: Region = None,
    client_id: ClientId = None,
    client_secret_file: ClientSecretFile = None,
    username: Annotated[str | None, Option("--username", metavar="USER", help="User name, if it has one.")] = None,
    secret: Annotated[
        str | None, Option("--secret", metavar="NAME", help="Stored secret to use (`aileron secret set NAME`).")
    ] = None,
    database: Annotated[str | None, Option("--database", metavar="NAME", help="Database to log in to.")] = None,
    host_key: Annotated[
        str | None, Option("--host-key", metavar="'TYPE BASE64'", help="Public key of the server, for a login by ssh.")
    ] = None,
    yes: Yes = False,
    passphrase_file: PassphraseFile = None,
    as_json: AsJson = False,
) -> None:
    """Add a service: its connector, actions and your credential.

    Without SERVICE, the services that come with Aileron are listed. At a terminal, Aileron asks for what you do not give, and
    then shows by a read that the service works. If decisions are signed, the approver signs once.
    """
    from aileron.catalogue.service import matching, services

    is_url = service is not None and "://" in service
    found = [entry for entry in services() if entry.name == service]
    if (is_url or not found) and address is not None:
        raise Problem.missing(f"no service {service!r} comes with Aileron", fix="aileron add")
    if not found and not is_url:
        _print_matching(matching(service or ""), service, as_json=as_json)
        return
    from aileron.cli.add import AddOptions, add_service
    from aileron.cli.add_servers import check_address
    from aileron.cli.publisher import application
    from aileron.registry.manifest import parse_connector_manifest

    if address is not None and found:
        check_address(found[0], address)
    command = f"aileron add {service}"
    own = application(client_id, client_secret_file, command)
    given = AddOptions(
        address=address,
        identity=identity,
        actions=actions,
        hosts=tuple(host or ()),
        logins=tuple(login or ()),
        region=region,
        client_id=None if own is None else own.client_id,
        client_secret=None if own is None or own.client_secret is None else own.client_secret.reveal().decode(),
        username=username,
        secret=secret,
        host_key=host_key,
        database=database,
        yes=yes,
        as_json=as_json,
    )
    supervisor = Supervisor(passphrase=passphrase_from(passphrase_file))
    if service is not None and is_url:
        from aileron.cli.add_url import add_url

        raise Exit(add_url(supervisor, service, given))
    manifest = parse_connector_manifest(found[0].manifest, file=f"{service}/manifest.toml", allow_unbound=True)
    raise Exit(add_service(supervisor, found[0], manifest, given))


def _print_matching(found: tuple[Service, ...], text: str | None, *, as_json: bool) -> None:
    """Print the services that match a search. Raises Problem if there are none."""
    from aileron.catalogue.service import services as every

    if not found:
        meant = did_you_mean(text or "", [entry.name for entry in every()])
        why, fix = meant if meant is not None else (None, None)
        raise Problem(
            f"no service matches {text!r}", exit_code=NOT_FOUND, name="not_found", why=why, fix=fix or "aileron add"
        )
    if as_json:
        output.print_json(
            {"services": [{"name": entry.name, "title": entry.title, "line": entry.line} for entry in found]}
        )
        return
    output.print_table(("SERVICE", "WHAT AGENTS CAN DO"), [(entry.name, entry.line) for entry in found], empty="")
    output.note("next: aileron add SERVICE")


def services(as_json: AsJson = False) -> None:
    """List the services that are connected.

    Under the list is what is wrong with each, and the command that fixes it.
    """
    found = Supervisor().fetch(ServiceList, "GET", "/v1/services")
    output.print_list(
        found,
        ("SERVICE", "CONNECTED AS", "ACTIONS", "LAST USED", "STATE"),
        (
            (
                entry.name,
                entry.account or "-",
                len(entry.actions),
                "never" if entry.last_used_at is None else output.local_time(entry.last_used_at),
                entry.state.replace("_", " "),
            )
            for entry in found.services
        ),
        as_json=as_json,
        empty="no services connected\n  fix: aileron add",
    )
    if not as_json:
        for entry in found.services:
            if entry.newer:
                output.note(
                    f"{visible(entry.name)}: a newer connector is here\n  fix: aileron update {visible(entry.name)}"
                )
            if entry.fix is not None:
                output.note(f"{visible(entry.name)}: {visible(entry.problem or '')}\n  fix: {visible(entry.fix)}")


def update(
    name: Annotated[
        str | None, Argument(metavar="SERVICE", help="Service to update. Default: all that can be updated.")
    ] = None,
    yes: Yes = False,
    passphrase_file: PassphraseFile = None,
    as_json: AsJson = False,
) -> None:
    """Update services to what came with this version of Aileron.

    Your action files keep their texts, and are pinned to the new connector. If decisions are signed, the approver signs once for
    each service.
    """
    from aileron.api.fetches import Installed
    from aileron.cli.decision_dialogue import carry_through

    supervisor = Supervisor(passphrase=passphrase_from(passphrase_file))
    listed = supervisor.fetch(ServiceList, "GET", "/v1/services").services
    names = [entry.name for entry in listed if entry.newer] if name is None else [name]
    if not names:
        output.note("every service is up to date")
    code = OK
    for service in names:
        path = path_of("v1", "services", service, "update")
        answer = supervisor.change(Installed, "POST", path, UpdateService(), wait_s=_REMOVE_S)

        def tell(result: Any, name: str = service) -> None:
            is_new = isinstance(result, Installed) and bool(result.connectors or result.actions)
            output.note(f"{visible(name)}: {'updated' if is_new else 'up to date'}")

        code = carry_through(supervisor, answer, tell, yes=yes, as_json=as_json) or code
    if code != OK:
        raise Exit(code)


def remove(
    name: Annotated[str, Argument(metavar="SERVICE", help="Name of the service, as `aileron services` lists it.")],
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """Remove a service with all that came with it.

    These are its actions, its credential and its connector. What agents have already done with it stays on record.
    """
    if not yes:
        if not can_ask():
            raise Problem.usage("no terminal to confirm at", fix=f"aileron remove {name} --yes")
        if not is_yes(f"Remove {visible(name)} with its actions and its credential? [y/N] "):
            raise Problem("nothing removed", exit_code=6, name="cancelled")
    from aileron.cli.add_url import remove_imported

    supervisor = Supervisor()
    gone = supervisor.fetch(RemovedService, "DELETE", path_of("v1", "services", name), wait_s=_REMOVE_S)
    remove_imported(supervisor.home, name)
    if as_json:
        output.print_json(gone)
        return
    parts = ((gone.actions, "action"), (gone.secrets, "secret"), (gone.connectors, "connector"))
    counted = ", ".join(f"{len(part)} {word}{'' if len(part) == 1 else 's'}" for part, word in parts)
    output.note(f"removed {visible(gone.removed)}: {counted}")
    for said in gone.at_provider:
        output.note(f"at the provider: {visible(said)}")
