"""Invocations that are resolved on the event loop: small ones, of files that were read before and not touched since."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from aileron.actions.store import ActionStore
from aileron.config import LiveSettings, Settings
from aileron.model.credential import Candidate
from aileron.model.invocation import Invocation, Scope
from aileron.model.manifest import ActionFile, ConnectorManifest, CredentialNeed
from aileron.model.names import Fqn
from aileron.model.plan import ConnectorPin, CredentialUse, Step
from aileron.runs.runnable import Runnable
from tests.support.home import probe_action

SMALL: dict[str, Any] = {"text": "x" * 1000, "list": [1, 2, {"deep": [None] * 50}]}


class _Home:
    """All that is checked beside the action files: unlocked, consented and known, except for what a test changes."""

    is_locked = False
    agreed = True
    known = True

    def is_as_consented(self, action: ActionFile) -> bool:
        return self.agreed

    def check(self, step: Step, action: str) -> None:
        return

    def accepted(self, pin: ConnectorPin, op: str) -> str | None:
        return None

    def missing(self, action: ActionFile) -> None:
        return

    def check_settings(self) -> None:
        return

    def why_not_in_force(self, destination: str) -> None:
        return

    def manifest(self, pin: ConnectorPin) -> ConnectorManifest:
        need = CredentialNeed(kind="basic", scope="whatever")
        return ConnectorManifest(name=Fqn.parse(pin.name), version=pin.version, credential=need)

    def at_hand(self, pin: ConnectorPin) -> ConnectorManifest | None:
        return self.manifest(pin) if self.known else None

    def candidates(self, connector: str, kind: str) -> list[Candidate]:
        return []

    def check_unchanged(self, use: CredentialUse, since: float) -> None:
        return

    def check_unlocked(self) -> None:
        return


class _Room:
    """A store with one action, and the check whether resolving it is quick."""

    def __init__(self, path: Path) -> None:
        self.actions = ActionStore(path / "actions", path / "state.json")
        pinned = probe_action("give_back", "text:string", name="give-back").replace(
            "sha256:bound-at-release", "sha256:" + "a" * 64
        )
        self.actions.add(pinned)
        self.file = path / "actions" / "give-back.md"
        self.home = _Home()
        self._runnable = Runnable(
            actions=self.actions,
            consent_checks=self.home,
            connectors=self.home,
            bindings=self.home,
            tools=self.home,
            settings=LiveSettings(Settings()),
        )

    def is_quick(self, args: dict[str, Any] = SMALL) -> bool:
        """Return whether an invocation with these arguments is quick."""
        return self._runnable.is_quick(Invocation(action="give-back", args=args, scope=Scope.AGENT, session="local"))


@pytest.fixture
def room(tmp_path: Path) -> _Room:
    """Return a room whose action was read."""
    made = _Room(tmp_path)
    assert not made.is_quick(), "nobody has read it"
    made.actions.load("give-back")
    assert made.is_quick()
    return made


@pytest.mark.parametrize(
    "args",
    [
        {"list": [0] * 250},
        {"list": [[0] * 20 for _ in range(20)]},
        {"text": "x" * 5000},
        {"x" * 5000: 1},
        {str(number): "" for number in range(250)},
        {"texts": ["x" * 100] * 50},
    ],
    ids=["values", "values in lists", "text", "a key", "keys", "texts"],
)
def test_large_arguments_are_checked_in_a_thread(room: _Room, args: dict[str, Any]) -> None:
    """Checking a megabyte takes seconds, which must not block the event loop."""
    assert not room.is_quick(args)


def test_a_modified_action_file_is_read_in_a_thread(room: _Room) -> None:
    """Invocations are resolved on the event loop again after the file was read once."""
    os.utime(room.file)
    assert not room.is_quick()
    room.actions.load("give-back")
    assert room.is_quick()


def test_a_folder_with_many_actions_is_read_in_a_thread(room: _Room) -> None:
    """A hundred names are still checked on the event loop."""
    for number in range(101):
        room.file.with_name(f"other-{number}.md").write_text("", encoding="utf-8")
    room.actions.load("give-back")
    assert not room.is_quick()


@pytest.mark.parametrize(("name", "value"), [("is_locked", True), ("agreed", False), ("known", False)])
def test_an_invocation_that_needs_data_outside_memory_is_not_resolved_on_the_event_loop(
    room: _Room, name: str, value: bool
) -> None:
    """The cases: bindings of a locked vault, a consent for another file, and a connector that was not verified."""
    setattr(room.home, name, value)
    assert not room.is_quick()
