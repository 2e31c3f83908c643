"""The servers of a service that is added: given as options, found by the person's address, or named by the person.

Runs in a command. An address finds offers (aileron/discovery); the person decides about each.

Rules
- No host is used, and none but the name servers is asked, before the person saw its name and agreed.
- Enter takes a host of the address's own domain. Any other takes a typed `y`, because DNS can be forged (RFC 6186 section 6).
- A script gets no host outside of the domain: it is told the options with what was found.
- If nothing is found, the person names the servers.

Source: docs/how-to/add-a-service.md, docs/adr/0080-servers-by-address.md. Not here: everything else that is asked (add.py).
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, Literal, NamedTuple, assert_never

from aileron.catalogue.service import Service
from aileron.cli import output
from aileron.cli.problem import Problem, parsed
from aileron.cli.prompts import NO, YES, ask, ask_now, can_ask, choose
from aileron.model.login import LoginTarget
from aileron.model.names import HostPort
from aileron.model.visible import visible
from aileron.registry.connector_build import unbound_protocols

if TYPE_CHECKING:
    from aileron.discovery.address import MailAddress
    from aileron.discovery.https import Https
    from aileron.discovery.offers import Offer
    from aileron.discovery.records import Records

__all__ = ["ChosenServers", "GivenServers", "check_address", "choose_servers"]

_PORTS: Final = {"imap": 993, "smtp": 465, "ssh": 22, "postgres": 5432}
"""Ports that are offered for a server: those with TLS from the start, where the protocol has one."""
_SERVERS: Final = {
    "imap": "IMAP server (incoming mail), such as imap.example.com",
    "smtp": "SMTP server (outgoing mail), such as smtp.example.com",
    "ssh": "Git server, such as git.example.com",
    "postgres": "PostgreSQL server, such as db.example.com",
}
"""Questions for a server, by protocol."""
_Needed = Literal["imap", "smtp", "caldav"]
"""A server that is looked for."""
_WORDS: Final[dict[_Needed, str]] = {"imap": "IMAP server", "smtp": "SMTP server", "caldav": "calendar server"}


class GivenServers(NamedTuple):
    """Options of the command line. `yes` confirms, for a script, that the domain's own servers may be asked and used."""

    address: str | None
    hosts: tuple[str, ...]
    logins: tuple[str, ...]
    yes: bool


class ChosenServers(NamedTuple):
    """The servers to build the connector for. `username` is the likely user name there; None if nothing is known."""

    hosts: tuple[str, ...] = ()
    logins: tuple[str, ...] = ()
    username: str | None = None


class _Found(NamedTuple):
    """The offers for each server that a service needs."""

    offers: dict[_Needed, tuple[Offer, ...]]
    username: str | None = None


def check_address(service: Service, text: str) -> None:
    """Raise Problem if the service's servers cannot be found by an address, or if the text is no address."""
    from aileron.discovery.address import MailAddress

    if service.found_by is None:
        why = f"{service.title} has no servers that an address could lead to"
        raise Problem.usage(f"{service.name} takes no address", why=why, fix=f"aileron add {service.name}")
    parsed("ADDRESS", MailAddress.parse, text)


def choose_servers(service: Service, given: GivenServers) -> ChosenServers:
    """Return the servers that the service asks for. Raises Problem if a script did not give them."""
    is_given = bool(given.hosts if "host" in service.asks else given.logins)
    address = None if is_given else _address(service, given)
    if address is None:
        return ChosenServers(_hosts(service, given), _logins(service, given), given.address)
    if not can_ask():
        return _for_script(service, address, given)
    return _confirmed(service, address, _found(service, address))


def _address(service: Service, given: GivenServers) -> MailAddress | None:
    """Return the address to find the servers by; None if the person names them."""
    if service.found_by is None or (given.address is None and not can_ask()):
        return None
    from aileron.discovery.address import MailAddress

    typed = given.address
    while True:
        if typed is None:
            typed = ask_now("Your address (Enter to name the servers yourself): ")
        if typed is None:
            raise _cancelled()
        if not typed:
            return None
        try:
            return MailAddress.parse(typed)
        except ValueError as error:
            output.note(visible(str(error)))
            typed = None


# Given, or named by the person


def _hosts(service: Service, given: GivenServers) -> tuple[str, ...]:
    if "host" not in service.asks:
        return ()
    if given.hosts:
        return tuple(str(parsed("--host", HostPort.parse, _with_port(host, 443))) for host in given.hosts)
    if not can_ask():
        raise Problem.usage("no terminal to ask for a server at", fix=f"aileron add {service.name} --host NAME:PORT")
    return (_host_by_hand(service),)


def _host_by_hand(service: Service) -> str:
    return str(_asked_host(f"Server, such as {service.example or f'{service.name}.example.com'}", 443))


def _logins(service: Service, given: GivenServers) -> tuple[str, ...]:
    if "login" not in service.asks:
        return ()
    if given.logins:
        return tuple(str(parsed("--login", LoginTarget.parse, login)) for login in given.logins)
    protocols = unbound_protocols(service.manifest)
    if not can_ask():
        why = f"a login for each of: {', '.join(protocols)}"
        fix = f"aileron add {service.name} --login PROTOCOL://NAME:PORT"
        raise Problem.usage("no terminal to ask for servers at", why=why, fix=fix)
    return tuple(_login_by_hand(protocol) for protocol in protocols)


def _login_by_hand(protocol: str) -> str:
    return f"{protocol}://{_asked_host(_SERVERS.get(protocol, f'{protocol} server'), _PORTS.get(protocol, 443))}"


def _asked_host(question: str, port: int) -> HostPort:
    """Ask for a server until the answer is a host name, with or without a port."""
    while True:
        typed = ask(question).removeprefix("https://").rstrip("/")
        try:
            return HostPort.parse(_with_port(typed, port))
        except ValueError as error:
            output.note(visible(str(error)))


def _with_port(host: str, port: int) -> str:
    return host if ":" in host else f"{host}:{port}"


# What an address leads to


def _found(service: Service, address: MailAddress) -> _Found:
    """Look for the servers, and tell what went wrong. The offers may be empty."""
    from aileron.config import load_settings
    from aileron.discovery.https import Https
    from aileron.discovery.offers import DiscoveryError
    from aileron.discovery.records import Records
    from aileron.home import Home

    # The daemon's own authorities are trusted too: a company's web server may show a certificate of its own.
    https = Https(load_settings(Home.from_environment().config).egress_ca_pem)
    if can_ask():
        output.note(f"looking for the servers of {address.domain}")
    try:
        if service.found_by == "mail":
            return _mail(address, Records(), https)
        return _calendars(address, Records(), https)
    except DiscoveryError as error:
        output.note(visible(str(error)))
        return _Found({})


def _mail(address: MailAddress, records: Records, https: Https) -> _Found:
    from aileron.discovery.mail import find_mail

    found = find_mail(address, records, https, lambda hosts: _may_contact(address, hosts))
    _tell(found.notes)
    return _Found({"imap": found.imap, "smtp": found.smtp}, found.username)


def _calendars(address: MailAddress, records: Records, https: Https) -> _Found:
    from aileron.discovery.calendars import find_calendars

    found = find_calendars(address, records, https, lambda hosts: _may_contact(address, hosts))
    _tell(found.notes)
    if found.path not in (None, "/"):
        output.note(f"its calendars are below {visible(str(found.path))}, which the server has to say itself")
    return _Found({"caldav": found.offers})


def _tell(notes: Sequence[str]) -> None:
    for note in notes:
        output.note(visible(note))


def _may_contact(address: MailAddress, hosts: tuple[str, ...]) -> bool:
    """Ask whether these hosts may be asked for servers. A script asks the domain's own alone."""
    is_own = all(address.owns(host) for host in hosts)
    if not can_ask():
        return is_own
    if not is_own:
        output.note(f"{' and '.join(hosts)} is outside of {address.domain}")
    return _agrees(f"Ask {' and '.join(hosts)} for the servers?", by_enter=is_own)


def _confirmed(service: Service, address: MailAddress, found: _Found) -> ChosenServers:
    """Return the offers that the person takes, and for what is missing the servers that they name."""
    agreed: set[str] = set()
    if service.found_by == "caldav":
        taken = _taken("caldav", address, found, agreed)
        return ChosenServers((_host_by_hand(service) if taken is None else str(taken.destination),), (), str(address))
    logins = []
    for protocol in unbound_protocols(service.manifest):
        needed = _needed(protocol)
        taken = _taken(needed, address, found, agreed)
        logins.append(_login_by_hand(protocol) if taken is None else _login(needed, taken))
    return ChosenServers((), tuple(logins), found.username or str(address))


def _taken(needed: _Needed, address: MailAddress, found: _Found, agreed: set[str]) -> Offer | None:
    """Return the offer that the person takes. A host to which they agreed is not asked about again."""
    offers = found.offers.get(needed, ())
    for offer in offers:
        host = offer.destination.host
        output.note(f"{_said(offer)} that its {_WORDS[needed]} is {_shown(offer)}")
        if not offer.is_own:
            output.note(f"  {host} is outside of {address.domain}: use it only if it is your provider's")
        if host in agreed or _agrees(f"Use {host}?", by_enter=offer.is_own):
            agreed.add(host)
            return offer
    if not offers:
        output.note(f"no {_WORDS[needed]} found for {visible(str(address))}; name it yourself")
    return None


def _said(offer: Offer) -> str:
    match offer.source:
        case "dns":
            return f"the DNS of {offer.by} says"
        case "autoconfig" | "well_known":
            return f"{offer.by} says"
        case impossible:
            assert_never(impossible)


def _shown(offer: Offer) -> str:
    return f"{offer.destination}{', with STARTTLS' if offer.encryption == 'starttls' else ''}"


def _agrees(question: str, *, by_enter: bool) -> bool:
    answer = choose(f"{question} {'[Y/n]' if by_enter else '[y/N]'} ", YES + NO)
    if answer is None:
        raise _cancelled()
    return answer in YES or (not answer and by_enter)


def _cancelled() -> Problem:
    return Problem("nothing added", exit_code=6, name="cancelled")


# Without a person


def _for_script(service: Service, address: MailAddress, given: GivenServers) -> ChosenServers:
    """Return the servers of the address's own domain. Raises Problem if they are not its own, or if one is missing."""
    command = f"aileron add {service.name} {shlex.quote(str(address))}"
    if not given.yes:
        why = f"servers of {address.domain} are asked for and used after a confirmation"
        raise Problem.usage("no terminal to confirm servers at", why=why, fix=f"{command} --yes")
    found = _found(service, address)
    needed: tuple[_Needed, ...] = ("caldav",) if service.found_by == "caldav" else ("imap", "smtp")
    options = []
    foreign: list[str] = []
    missing: list[_Needed] = []
    for need in needed:
        offers = found.offers.get(need, ())
        offer = next((offer for offer in offers if offer.is_own), offers[0] if offers else None)
        if offer is None:
            missing.append(need)
        elif not offer.is_own:
            foreign.append(offer.destination.host)
        options.append(_option(need, offer))
    if missing or foreign:
        raise _unusable(address, missing, foreign, " ".join([command, *options, *_username_option(address, found)]))
    username = found.username or str(address)
    values = tuple(option.partition(" ")[2] for option in options)
    return ChosenServers(values, (), username) if needed == ("caldav",) else ChosenServers((), values, username)


def _unusable(address: MailAddress, missing: Sequence[_Needed], foreign: Sequence[str], fix: str) -> Problem:
    if missing:
        what = f"no {' and no '.join(_WORDS[need] for need in missing)} found for {address}"
        return Problem.usage(what, fix=fix)
    why = "DNS can be forged, so a person has to check that it is the provider's"
    hosts = " and ".join(dict.fromkeys(foreign))
    return Problem.usage(f"{hosts} is outside of {address.domain}", why=why, fix=fix)


def _option(needed: _Needed, offer: Offer | None) -> str:
    """Return the option that names this server."""
    if needed == "caldav":
        return f"--host {'NAME:PORT' if offer is None else offer.destination}"
    return f"--login {f'{needed}://NAME:PORT' if offer is None else _login(needed, offer)}"


def _username_option(address: MailAddress, found: _Found) -> list[str]:
    return [] if found.username in (None, str(address)) else ["--username", shlex.quote(str(found.username))]


def _needed(protocol: str) -> Literal["imap", "smtp"]:
    assert protocol in ("imap", "smtp"), protocol
    return "imap" if protocol == "imap" else "smtp"


def _login(protocol: _Needed, offer: Offer) -> str:
    return f"{protocol}+{offer.encryption}://{offer.destination}"
