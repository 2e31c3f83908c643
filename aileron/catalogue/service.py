"""A service of the catalogue: what it says of itself in `catalogue.toml`, beside its connector and its actions.

Reads files of this installation and nothing else.

    connectors/mail/catalogue.toml      title, words, the program's hash, how a person gets a credential, how to check it
                    manifest.toml       what the connector asks for; hosts that are the person's are placeholders
                    actions/NAME/action.md

Rules
- The folder's name is the service's name, and every action begins with it.
- An unknown key is an error, so that a misspelt one is found by the tests.

>>> sorted(service.name for service in services())[:3]
['caldav', 'git', 'github']
"""

from __future__ import annotations

import functools
import tomllib
from pathlib import Path
from typing import Final, Literal

import msgspec

from aileron.actions.manifest import parse_action
from aileron.model.effect import Effect
from aileron.model.failure import AileronError, Boundary, FailureClass
from aileron.model.manifest import ActionFile
from aileron.model.near import did_you_mean

__all__ = [
    "Asked",
    "Check",
    "Credential",
    "FoundBy",
    "Permission",
    "Role",
    "Service",
    "Trial",
    "matching",
    "service_at",
    "service_named",
    "services",
]

_DESCRIPTION: Final = "catalogue.toml"
_HERE: Final = Path(__file__).resolve().parent
_PLACES: Final = (_HERE / "services", _HERE.parents[1] / "connectors")
"""Folders that can have the services: that of an installed wheel, and that of a checkout."""
_PACKED: Final = (_HERE / "packed", _HERE.parents[1] / "build" / "packed")
"""Folders that can have the packages of others that a service's connector is built with, by the service's name."""
Asked = Literal["host", "login", "region", "application"]
"""A value of the person's that the manifest has a placeholder for: a host, a login at a host, the region of a signature, or an
application that is registered at the provider.
"""
FoundBy = Literal["mail", "caldav"]
"""Way to find a service's servers by a mail address: the domain's mail servers, or its calendar server."""
Role = Literal["reader", "writer"]
"""A role at a service that has two: one for actions that only read, and one for all others."""


class Permission(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A permission that a person gives the credential at the service: its name there, the access, and what it is needed for."""

    name: str
    access: str
    needed_for: str


class Credential(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The way to a credential with the least rights. `page` is the URL where it is made; None if that depends on the provider."""

    steps: tuple[str, ...]
    page: str | None = None
    permissions: tuple[Permission, ...] = ()
    costs: str | None = None
    """Effort before it works, such as an application that the person registers; None if it takes minutes at most."""


class Trial(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A run that shows a person how the service works: an action and its arguments.

    `asks` are arguments that the person gives, by name, with the words to ask for each. A text in `args` can contain `{NAME}` for
    one of those, and `{tomorrow}` for tomorrow's date.
    """

    action: str
    args: dict[str, str | int | bool | dict[str, str]] = {}
    asks: dict[str, str] = {}


class Check(Trial, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A read without approval that shows that the credential works, and what to tell of its result.

    `says` is a text with `{NAME}` for a member of the result, and `{NAME.count:event|events}` for the number of members of a
    list, with the noun for one and for several. `account` is the member that has the name of the account, if there is one.
    """

    says: str
    account: str | None = None


class Service(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, dict=True):
    """A service of the catalogue. `title` and `line` are for people, `words` for searches.

    `program` is the pin (`sha256:…`) of the connector's program, which is the same for everybody; the manifest is not, because
    it can name the person's hosts. `program` is empty for a service that was made on this machine. `asks` are the values of the
    person's that the manifest needs, `found_by` is how the servers among them can be found by an address. `roles` are the roles
    whose credentials it takes, if there is more than one.
    """

    name: str
    directory: str
    """Absolute path of the service's folder."""
    title: str
    line: str
    words: tuple[str, ...]
    version: str
    program: str
    asks: tuple[Asked, ...] = ()
    found_by: FoundBy | None = None
    example: str | None = None
    """Name of a server, as an example for the person who is asked for theirs."""
    credential: Credential
    check: Check | None = None
    change: Trial | None = None
    """A harmless change that waits for approval, for a person who decides for the first time."""
    roles: tuple[Role, ...] = ()
    packs: tuple[str, ...] = ()
    """Packages of others that the connector is built with."""

    @property
    def is_bundled(self) -> bool:
        """True if the service came with Aileron, and false if its connector was made on this machine."""
        return bool(self.program)

    @property
    def packed(self) -> Path | None:
        """Folder of the packages of others that the connector is built with; None if it needs none.

        Raises AileronError(not_found) if a checkout does not have them yet.
        """
        if not self.packs:
            return None
        for place in _PACKED:
            if (place / self.name).is_dir():
                return place / self.name
        message = (
            f"{', '.join(self.packs)} is missing beside {self.name}: run `pip install --editable .` in the checkout"
        )
        raise AileronError(FailureClass.NOT_FOUND, message, boundary=Boundary.USER)

    @property
    def manifest(self) -> bytes:
        """The connector's manifest, with placeholders for the person's values."""
        return Path(self.directory, "manifest.toml").read_bytes()

    @functools.cached_property
    def connector(self) -> str:
        """Full name of the service's connector."""
        return str(tomllib.loads(self.manifest.decode())["connector"]["name"])

    @property
    def actions(self) -> tuple[str, ...]:
        """Names of the service's actions, sorted."""
        return tuple(sorted(path.parent.name for path in Path(self.directory, "actions").glob("*/action.md")))

    def action_text(self, name: str) -> str:
        """Return the source text of an action. Raises AileronError(not_found) if the service has no such action."""
        if name not in self.actions:
            hint = did_you_mean(name, self.actions, f"it has {', '.join(self.actions)}")
            message = f"{self.name} has no action {name[:80]!r}: {hint}"
            raise AileronError(FailureClass.NOT_FOUND, message, boundary=Boundary.USER)
        return Path(self.directory, "actions", name, "action.md").read_text(encoding="utf-8")

    def only_reads(self, name: str) -> bool:
        """Return whether an action runs without approval, because every one of its steps only reads. Raises AileronError as
        `action_text` does.
        """
        action = self._action(name)
        return not action.approval.required and all(step.does is Effect.READ for step in action.steps)

    def asks_each_time(self, name: str) -> bool:
        """Return whether each run of an action waits for approval. Some run without although they write, such as one that stores
        a draft. Raises AileronError as `action_text` does.
        """
        return self._action(name).approval.required

    def _action(self, name: str) -> ActionFile:
        return parse_action(self.action_text(name), file=name, allow_placeholder=True)

    def matches(self, text: str) -> bool:
        """Return whether the service's name, title, line or words contain the text, whatever its case."""
        return any(text.lower() in said.lower() for said in (self.name, self.title, self.line, *self.words))


def service_at(directory: Path, name: str, title: str = "") -> Service:
    """Return the service of a connector that was made on this machine, with its actions, for instance from an OpenAPI document.

    The first read that needs no arguments is its check. `name` is how its actions begin. Raises AileronError(invalid_request) if
    the directory has no connector, or has an action of another name.
    """
    try:
        manifest = tomllib.loads((directory / "manifest.toml").read_text(encoding="utf-8"))
        version, scope = (
            manifest["connector"]["version"],
            manifest["capabilities"].get("credential", {}).get("scope", ""),
        )
    except (OSError, ValueError, KeyError) as error:
        message = f"{directory} has no connector: {error}"
        raise AileronError(FailureClass.INVALID_REQUEST, message, boundary=Boundary.USER) from None
    service = Service(
        name=name,
        directory=str(directory),
        title=title or name,
        line=str(scope),
        words=(),
        version=str(version),
        program="",
        credential=Credential(steps=()),
    )
    if wrong := [action for action in service.actions if not action.startswith(f"{name}-")]:
        message = f"{directory} has the action {wrong[0][:80]!r}, whose name does not begin with {name}-"
        raise AileronError(FailureClass.INVALID_REQUEST, message, boundary=Boundary.USER)
    free = (
        action for action in service.actions if service.only_reads(action) and not _needs_arguments(service, action)
    )
    first = next(free, None)
    return msgspec.structs.replace(service, check=None if first is None else Check(action=first, says="answered"))


def _needs_arguments(service: Service, action: str) -> bool:
    source = parse_action(service.action_text(action), file=action, allow_placeholder=True)
    return any(spec.required for spec in source.inputs)


@functools.cache
def services() -> tuple[Service, ...]:
    """Return the services of this installation, sorted by name."""
    root = next(place for place in _PLACES if place.is_dir())
    return tuple(_read(path) for path in sorted(root.glob(f"*/{_DESCRIPTION}")))


def service_named(name: str) -> Service:
    """Return the service of this name. Raises AileronError(not_found) with the nearest name."""
    for service in services():
        if service.name == name:
            return service
    hint = did_you_mean(name, [service.name for service in services()], "`aileron add` lists those that do")
    message = f"no service {name[:80]!r} comes with Aileron: {hint}"
    raise AileronError(FailureClass.NOT_FOUND, message, boundary=Boundary.USER)


def matching(text: str) -> tuple[Service, ...]:
    """Return the services that match a search, sorted by name; all of them for an empty text."""
    return tuple(service for service in services() if service.matches(text))


def _read(path: Path) -> Service:
    found = tomllib.loads(path.read_text(encoding="utf-8"))
    return msgspec.convert({**found, "name": path.parent.name, "directory": str(path.parent)}, Service)
