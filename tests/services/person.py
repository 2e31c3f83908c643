"""A person who adds a service at a terminal, in a home whose decisions are signed; and what there is in that home."""

from __future__ import annotations

import dataclasses
import sys
from typing import Final

from aileron.actions.manifest import parse_action
from aileron.catalogue.service import service_named
from tests.cli.command import Command, Said
from tests.cli.person import APPROVER, SIGN, at_terminal
from tests.services.google import GoogleStand
from tests.services.stands import Stand, Typed
from tests.support.home import DaemonHome
from tests.support.memories import command_of, descendants_of
from tests.support.real_names import RealNames

__all__ = ["NOTHING", "Person", "Walk", "connectors", "left"]

_JOIN_S: Final = 30.0
_BROWSER: Final = "true"
"""Browser of the person: a program that opens nothing."""


@dataclasses.dataclass(frozen=True)
class Walk:
    """A person's way through `aileron add`."""

    service: str
    typed: tuple[Typed, ...]
    said: Said

    @property
    def keystrokes(self) -> int:
        """Number of keys that the person pressed, secrets not counted."""
        return sum(typed.keystrokes for typed in self.typed)

    @property
    def lines(self) -> int:
        """Number of lines that the person typed, passphrases and secrets included."""
        return len(self.typed)


@dataclasses.dataclass(frozen=True)
class Person:
    """A person at a terminal in a home whose decisions are signed."""

    home: DaemonHome
    machine: RealNames

    @property
    def aileron(self) -> Command:
        """The command, where the test runs: it speaks only to the daemon's socket."""
        return Command(self.home.path)

    def adds(self, stand: Stand, *, right: bool = True) -> Walk:
        """Add the service, and answer everything that is asked."""
        typed = (
            *stand.asked(right=right),
            Typed("Approve? ", "y"),
            Typed(SIGN[0], APPROVER, is_secret=True),
            *stand.tries,
        )
        # The command itself fetches the key of an SSH server, so there it has to run in the machine.
        program = [*self.machine.prefix, sys.executable, "-m", "aileron"] if stand.service == "git" else []
        command = Command(self.home.path, program=program)
        answers = [(step.question, step.text) for step in typed]
        said = at_terminal(command, "add", stand.service, answers=answers, BROWSER=_BROWSER)
        return Walk(stand.service, typed, said)

    def adds_google(self, stand: GoogleStand, *, leaves: bool = False) -> Said:
        """Add Google, sign in in the browser and approve everything that is asked; with `leaves`, press Ctrl-C instead of that.

        The number of decisions does not matter.
        """
        asked = [("Which actions? ", ""), ("Open this page? [y/N] ", "n"), ("Approve? ", "y"), SIGN]
        visit = stand.desktop.watch((lambda _url: None) if leaves else stand.signs_in)
        said = at_terminal(
            self.aileron,
            *("add", "google", *stand.application),
            whenever=[*asked, *([("press Ctrl-C to cancel", "\x03")] if leaves else [])],
            BROWSER=stand.desktop.opener,
        )
        visit.join(_JOIN_S)
        return said

    def approves(self, action: str, question: str) -> Said:
        """Approve a question about an action. If it has a preview, the passphrase comes first: only the key opens the preview."""
        text = service_named(action.partition("-")[0]).action_text(action)
        has_preview = parse_action(text, file=action, allow_placeholder=True).preview is not None
        answers = [SIGN, ("Approve? ", "y")] if has_preview else [("Approve? ", "y"), SIGN]
        return at_terminal(self.aileron, "approve", question, answers=answers)

    def replaces(self, name: str, stand: Stand) -> None:
        """Replace a secret by the good one: typed, or from a file if it has several lines; the approver signs in any case."""
        if stand.replacement is None:
            answers = [(f"Value of {name}: ", stand.secret.decode()), ("Approve? ", "y"), SIGN]
            at_terminal(self.aileron, "secret", "set", name, answers=answers).exits(0)
            return
        waits = self.aileron("secret", "set", name, "--json", given=stand.replacement).exits(75)
        answers = [("Type allow to approve: ", "allow"), SIGN]
        at_terminal(self.aileron, "approve", waits.json["approval_id"], answers=answers).exits(0)


def left(person: Person) -> dict[str, object]:
    """Return everything that is installed, bound, stored or waits, by kind, and the files of connectors and actions."""
    listed = {kind: person.aileron(kind, "list", "--json").exits(0).json[f"{kind}s"] for kind in _LISTS}
    services = person.aileron("services", "--json").exits(0).json
    found = (path for name in _KEPT for path in (person.home.path / name).rglob("*") if path.is_file())
    return {**listed, **services, "file": [path.name for path in found if path.suffix != ".lock"]}


_LISTS: Final = ("action", "connector", "binding", "secret", "approval")
_KEPT: Final = ("actions", "connectors", "store", "staging")
NOTHING: Final[dict[str, object]] = {kind: [] for kind in (*_LISTS, "services", "file")}
"""Result of `left` for a home in which nothing was added."""


def connectors(person: Person) -> int:
    """Return the number of processes that connectors run in, with those that fork them. Those for logins are left out: their
    forking process stays for the next service, whichever it is.
    """
    assert person.home.daemon_pid is not None
    commands = [command_of(pid) for pid in descendants_of(person.home.daemon_pid)]
    return sum(b"aileron_sandbox" in command for command in commands)
