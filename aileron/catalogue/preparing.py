"""A service for one account: its connector, built for the person's hosts, and its action files, named for the account.

Pure, apart from reading the service's files. Runs nothing of them.

Rules
- The program must be the one that the catalogue pins. Only the manifest differs between accounts.
- The first account of a service has the service's own names. Another one, such as `work`, has names that begin with it
  (`work-mail-send`), and a connector of its own if the connector names the person's hosts: two accounts never share what one of
  them was allowed.
- Every action names the identity of its account, so that no run has to choose.

Source: docs/adr/0079-services-come-with-aileron.md. Not here: asking a person, installing (daemon/packages/services.py).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import msgspec
from msgspec import UNSET

from aileron.actions.manifest import parse_action
from aileron.catalogue.service import Service
from aileron.model.canonical import sha256_digest
from aileron.model.failure import AileronError, Boundary, FailureClass
from aileron.model.login import LoginTarget
from aileron.model.manifest import ConnectorManifest
from aileron.model.names import BINDING_PART, UNBOUND_HASH, HostPort
from aileron.model.plan import ConnectorPin
from aileron.model.secret import Secret
from aileron.registry.connector_build import Application, Built, build
from aileron.registry.manifest import parse_connector_manifest
from aileron.registry.placeholders import UNRELEASED

__all__ = ["FIRST", "Hosts", "action_texts", "built", "hosts_of", "label", "repinned"]

FIRST: Final = "me"
"""Identity of a service's first account."""
_NAME: Final = re.compile(r'(?m)^name = "[^"\n]+"$')
_SOURCE: Final = re.compile(r'(?m)^source = "[^"\n]+"\n')


class Hosts(msgspec.Struct, frozen=True, kw_only=True):
    """The person's values for a manifest's placeholders. What the service does not ask for is empty."""

    hosts: tuple[HostPort, ...] = ()
    logins: tuple[LoginTarget, ...] = ()
    region: str | None = None
    application: Application | None = None


def label(service: str, identity: str) -> str:
    """Return the name of a service's account: the service's own for the first one.

    >>> label("mail", "me"), label("mail", "work")
    ('mail', 'work-mail')
    """
    return service if identity == FIRST else f"{identity}-{service}"


def built(service: Service, identity: str, given: Hosts) -> Built:
    """Return the service's connector, built for an account. Raises AileronError(invalid_request) if a value is missing or not
    valid, and (hash_mismatch) if the program is not the pinned one, because the installation was changed.
    """
    if not BINDING_PART.fullmatch(identity):
        message = f"identity {identity[:80]!r} is not lower-case letters, digits, '.', '_', '-', at most 64"
        raise AileronError(FailureClass.INVALID_REQUEST, message, boundary=Boundary.USER)
    made = build(
        Path(service.directory),
        given.hosts,
        given.application,
        version=service.version,
        logins=given.logins,
        region=given.region,
        account=None if identity == FIRST or not service.asks else identity,
        packed=service.packed,
    )
    if sha256_digest(made.connector) != service.program:
        raise AileronError(
            FailureClass.HASH_MISMATCH,
            f"the program of {service.name} is {sha256_digest(made.connector)}, and not {service.program} as it came with "
            "Aileron: install Aileron again",
            boundary=Boundary.CONNECTOR_MANIFEST,
        )
    return made


def hosts_of(service: Service, manifest: ConnectorManifest) -> Hosts:
    """Return the person's values that a service's installed connector was built with."""
    need, oauth2 = manifest.credential, manifest.oauth2
    fixed = set(parse_connector_manifest(service.manifest, file=service.name, allow_unbound=True).hosts)
    application = None
    if "application" in service.asks and oauth2 is not None and oauth2.client_id is not None:
        secret = None if oauth2.client_secret is None else Secret(oauth2.client_secret.encode())
        application = Application(client_id=oauth2.client_id, client_secret=secret)
    scope = None if need is None or need.aws is UNSET else need.aws
    return Hosts(
        hosts=tuple(host for host in manifest.hosts if host not in fixed) if "host" in service.asks else (),
        logins=need.logins if "login" in service.asks and need is not None else (),
        region=scope.region if "region" in service.asks and scope is not None else None,
        application=application,
    )


def repinned(text: str, old: Sequence[ConnectorPin], new: ConnectorPin) -> str:
    """Return an action file pinned to another version of its connector, and otherwise unchanged.

    Raises AileronError(invalid_request) if the file does not have version and hash of the connector below each other.
    """
    made = text
    for pin in old:
        pattern = rf'(?m)^(\s*version\s*=\s*)"{re.escape(pin.version)}"(\s*\n\s*hash\s*=\s*)"{re.escape(pin.hash)}"'
        made = re.sub(pattern, lambda found: f'{found[1]}"{new.version}"{found[2]}"{new.hash}"', made)
    action = parse_action(made, file="action")
    if any(str(needed.name) == new.name and needed.hash != new.hash for needed in action.connectors):
        message = (
            f"{action.name} does not name the version and the hash of {new.name} on two lines below each other: write "
            f'version = "{new.version}" and hash = "{new.hash}" into the file'
        )
        raise AileronError(FailureClass.INVALID_REQUEST, message, boundary=Boundary.USER)
    return made


def action_texts(service: Service, names: Sequence[str], identity: str, pin: ConnectorPin) -> list[str]:
    """Return the action files of these names for an account, pinned to its connector. Raises AileronError(not_found) for a name
    that the service does not have.
    """
    return [_for_account(service.action_text(name), service, identity, pin) for name in names]


def _for_account(text: str, service: Service, identity: str, pin: ConnectorPin) -> str:
    source = parse_action(text, file=service.name, allow_placeholder=True)
    name = label(service.name, identity) + source.name.removeprefix(service.name)
    text = _NAME.sub(lambda _: f'name = "{name}"', text, count=1)
    text = _SOURCE.sub("", text, count=1)
    text = text.replace(f'"{UNRELEASED}"', f'"{service.version}"')
    for connector in {str(connector.name) for connector in source.connectors}:
        text = text.replace(f'"{connector}"', f'"{pin.name}"')
    text = text.replace(f'hash = "{UNBOUND_HASH}"', f'hash = "{pin.hash}"\nidentity = "{identity}"')
    made = parse_action(text, file=name)
    assert made.name == name
    assert all(needed.identity == identity and needed.hash == pin.hash for needed in made.connectors)
    return text
