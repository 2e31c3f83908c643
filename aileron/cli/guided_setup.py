"""The steps of `aileron setup`: this machine, the vault, the approver, services, a first decision, and an agent.

Runs in a command at a terminal. Each step says whether it is done by looking at what is there, such as a vault or a decision on
record; nothing else is stored. So a setup that was left goes on where it was, also after the same things were done by other
commands.

Rules
- Every step can be left: Ctrl-C ends the setup, and what was done stays.
- A step that fails says why, with the fix. Steps that later ones do not need are passed over then.
- Everything that is decided here takes the same way as elsewhere: the same cards, and the approver's signature.

Source: docs/how-to/set-up-aileron.md. Not here: the dialogue for one service (add.py), the checks of a machine
(commands/doctor.py), cells (cells.py).
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple, NoReturn

from aileron.api.approvals import ApprovalList
from aileron.api.daemon import Status
from aileron.api.services import ServiceEntry, ServiceList
from aileron.api.sessions import SessionList
from aileron.cli import output
from aileron.cli.problem import INTERRUPTED, OK, UNFINISHED, Problem
from aileron.cli.prompts import NO, YES, ask_now, ask_unseen, choose, is_yes, unseen_between
from aileron.cli.supervisor import Supervisor
from aileron.files import make_directory
from aileron.model.consent import SETTINGS

if TYPE_CHECKING:
    from pathlib import Path

    from aileron.catalogue.service import Service
    from aileron.launch.agent import Agent

__all__ = ["GuidedSetup", "offer", "set_up"]

_DECISIONS: Final = "/v1/audit?type=approval.decided&limit=200"
_VAULT: Final = (
    "The vault is an encrypted file for your passwords and tokens. You type its passphrase after each start of Aileron; a script "
    "may have it too, so that agents can work while you are away."
)
_APPROVER: Final = (
    "An agent runs as your user, so it could type `aileron approve` itself. A second passphrase, which only you know and "
    "which is stored nowhere, signs your decisions. A security key or a passkey can take its place later: "
    "`aileron open approvals`."
)
_SERVICES: Final = (
    "A service becomes actions for your agents. Those that only read run at once; all others ask you each time."
)
_DECISION: Final = "Try an action that asks you. What you see is a real change, and it is made only if you approve it."
_AGENT: Final = "A coding agent that `aileron launch` starts has your actions as its tools, and none of your keys."
_OFFER: Final = "Aileron is not set up yet: it needs a vault, an approver, services and an agent. Set it up now? [Y/n] "


class _Step(NamedTuple):
    """A step: its name, the text before it, what is there if it is done (None if it is not), and what does it.

    `do` returns an exit code. Later steps do not need a step that is `passable`.
    """

    name: str
    text: str
    found: Callable[[], str | None]
    do: Callable[[], int]
    passable: bool = False


def offer(home: Path) -> int | None:
    """Offer the setup to a person who uses this home for the first time. Return 130 if they interrupt it, else None.

    If they do not want it, the home is created, so that they are not asked again.
    """
    typed = choose(_OFFER, (*YES, *NO))
    if typed is None or typed in NO:
        make_directory(home)
        output.note("to set it up later: aileron setup\n")
        return None
    return INTERRUPTED if set_up(Supervisor(home=home)) == INTERRUPTED else None


def set_up(supervisor: Supervisor) -> int:
    """Guide a person through all steps that are not done yet. Return the exit code.

    If they choose an agent, this process becomes it instead.
    """
    setup = GuidedSetup(supervisor)
    with unseen_between():
        code = setup.perform()
    if setup.agent is not None:
        _become("launch", setup.agent.name)
    return code


class GuidedSetup:
    """A guided setup of one home, at this terminal."""

    def __init__(self, supervisor: Supervisor) -> None:
        self._supervisor = supervisor
        self._passphrase: str | None = None
        """The vault's passphrase, if it was typed here."""
        self.agent: Agent | None = None
        """The agent that the person wants to start here when the setup is done."""
        self._steps: Final = (
            _Step("machine", "", self._machine_found, self._check_machine),
            _Step("vault", _VAULT, self._vault_found, self._open_vault),
            _Step("approver", _APPROVER, self._approver_found, self._create_approver, passable=True),
            _Step("services", _SERVICES, self._services_found, self._add_services, passable=True),
            _Step("decision", _DECISION, self._decision_found, self._decide, passable=True),
            _Step("agent", _AGENT, self._agent_found, self._start_agent, passable=True),
        )

    def perform(self) -> int:
        """Do all steps that are not done yet. Return the exit code: 0 if all are done, 75 if a step is left."""
        output.note(
            f"Aileron setup: {len(self._steps)} steps. Ctrl-C leaves; `aileron setup` goes on where you left.\n"
        )
        left: list[str] = []
        for number, step in enumerate(self._steps, start=1):
            title = f"{number}/{len(self._steps)} {step.name}"
            try:
                if not self._is_done(step, title):
                    left.append(step.name)
                    if not step.passable:
                        return self._told_left(left)
            except KeyboardInterrupt:
                output.note(f"\nleft at {title}; to go on: aileron setup")
                return INTERRUPTED
        return self._told_left(left)

    def tell_status(self) -> int:
        """Print what is there for each step. Return the exit code: 0 if all are done, 75 otherwise."""
        found = [(step.name, step.found()) for step in self._steps]
        output.print_facts([(name, there or "to do") for name, there in found])
        return UNFINISHED if any(there is None for _, there in found) else OK

    def _is_done(self, step: _Step, title: str) -> bool:
        """Do a step if it is not done yet. Return whether it is done now."""
        if (found := step.found()) is not None:
            output.note(f"{title}: {found}")
            return True
        output.note(f"\n{output.styled(title, 'bold', 'stderr')}")
        if step.text:
            output.note(step.text)
        try:
            code = step.do()
        except Problem as problem:
            for line in problem.lines():
                output.note(line)
            code = problem.exit_code
        found = step.found() if code == OK else None
        output.note(f"{title}: {found or 'not done'}")
        return found is not None

    def _told_left(self, left: Sequence[str]) -> int:
        if left:
            output.note(f"left to do: {', '.join(left)}\n  fix: aileron setup")
            return UNFINISHED
        output.note("Aileron is set up. What waits for you: aileron console. More services: aileron add.")
        return OK

    def _status(self) -> Status:
        return self._supervisor.fetch(Status, "GET", "/v1/status")

    # Machine

    def _machine_found(self) -> str | None:
        from aileron.cli.commands.doctor import machine_checks

        report, checks = machine_checks(self._supervisor)
        if any(check.state == "bad" for check in checks):
            return None
        cells = any(check.name == "cells" and check.state == "ok" for check in checks)
        can = "connectors run in a jail" + (
            ", agents can start in a cell" if cells else "; agents cannot start in a cell"
        )
        return f"Linux {report.kernel_release}: {can}"

    def _check_machine(self) -> int:
        """Show what is wrong with this machine until nothing is, or the person leaves."""
        from aileron.cli.commands.doctor import machine_checks, print_checks

        while bad := [check for check in machine_checks(self._supervisor)[1] if check.state == "bad"]:
            print_checks(bad)
            if ask_now("Press Enter to check again: ") is None:
                return UNFINISHED
        return OK

    # Vault

    def _vault_found(self) -> str | None:
        state = self._status().vault
        if not state.exists or state.locked or state.problem:
            return None
        return "open"

    def _open_vault(self) -> int:
        if self._supervisor.vault_state().exists:
            self._supervisor.open_vault()
            return OK
        from aileron.cli.commands.vault import can_use_keyring, create

        is_kept = can_use_keyring() and is_yes(
            "Keep a key for it in the desktop's keyring, so that Enter opens it? [y/N] "
        )
        self._passphrase = ask_unseen("New vault passphrase", twice=True)
        create(self._supervisor, self._passphrase, keyring=is_kept)
        return OK

    # Approver

    def _approver_found(self) -> str | None:
        approver = self._status().approver
        return "your signature decides" if approver.status == "ready" else None

    def _create_approver(self) -> int:
        from aileron.cli.commands.approver import create

        return create(self._supervisor, self._passphrase)

    # Services

    def _connected(self) -> list[ServiceEntry]:
        return self._supervisor.fetch(ServiceList, "GET", "/v1/services").services

    def _services_found(self) -> str | None:
        return ", ".join(entry.name for entry in self._connected()) or None

    def _add_services(self) -> int:
        """Let the person add services until they go on."""
        from aileron.cli.app import main

        main(["add"])
        while words := (ask_now("\nadd (a service or its address; Enter to go on): ") or "").split():
            if main(["add", *words]) == INTERRUPTED:
                raise KeyboardInterrupt
        return OK

    # Decision

    def _decision_found(self) -> str | None:
        events = self._supervisor.ask("GET", _DECISIONS)["events"]
        return "you have decided on an action" if any(event.get("kind") == "action" for event in events) else None

    def _decide(self) -> int:
        """Run a service's first change, which the person decides about. Return the exit code."""
        from aileron.cli.trial import asked_arguments

        usable = self._changes()
        if not usable:
            output.note("no service that changes something is connected yet")
            return UNFINISHED
        entry, service = usable[0]
        change = service.change
        assert change is not None
        action = entry.name + change.action.removeprefix(service.name)
        output.note(f"  action: {action}")
        args = asked_arguments(change)
        if args is None:
            return UNFINISHED
        import json

        from aileron.cli.run import build, perform

        perform(build(action, [], {"--args": json.dumps(args)}))
        return OK

    def _changes(self) -> list[tuple[ServiceEntry, Service]]:
        """Return the connected services whose first change is among their actions."""
        from aileron.catalogue.service import services

        by_name = {service.name: service for service in services()}
        found = []
        for entry in self._connected():
            service = by_name.get(entry.service or "")
            if service is None or service.change is None or entry.state != "ready":
                continue
            if entry.name + service.change.action.removeprefix(service.name) in entry.actions:
                found.append((entry, service))
        return found

    # Agent

    def _agent_found(self) -> str | None:
        if self.agent is not None:
            return f"{self.agent.title} starts in {os.getcwd()}"
        sessions = self._supervisor.fetch(SessionList, "GET", "/v1/sessions").sessions
        return f"{sessions[0].agent} was started with your actions" if sessions else None

    def _start_agent(self) -> int:
        """Let the person choose an agent of this machine, and whether it runs in a cell."""
        from aileron.launch.agents import AGENTS

        here = [agent for agent in AGENTS.values() if shutil.which(agent.program)]
        if not here:
            output.note("none of the agents that Aileron can start is in PATH")
            for agent in AGENTS.values():
                output.note(f"  {agent.title}: {agent.install}")
            return UNFINISHED
        self._choose_cells()
        self.agent = _chosen(here)
        return UNFINISHED if self.agent is None else OK

    def _choose_cells(self) -> None:
        """Ask whether agents start in cells, and let the person sign the answer at once."""
        from aileron.cli.cells import ask_about_cells
        from aileron.cli.commands.launch_cell import are_cells_possible

        before = self._status()
        ask_about_cells(self._supervisor.home / "config.toml", before, is_possible=are_cells_possible)
        if before.settings_waiting or not self._status().settings_waiting:
            return
        waiting = self._supervisor.fetch(ApprovalList, "GET", "/v1/action-approvals").approvals
        for question in waiting:
            if question.kind == SETTINGS:
                from aileron.cli.decision_dialogue import Dialogue

                Dialogue(self._supervisor, question.approval_id).settle_here()


def _chosen(agents: Sequence[Agent]) -> Agent | None:
    """Return the agent that the person wants to start here, or None."""
    by_number = {str(number): agent for number, agent in enumerate(agents, start=1)}
    for number, agent in by_number.items():
        output.note(f"  {number}  {agent.title}")
    return by_number.get(choose(f"Start one in {os.getcwd()}? [1-{len(agents)}, Enter for not now] ", by_number) or "")


def _become(*words: str) -> NoReturn:
    """Execute another command of Aileron in place of this one, as it was started."""
    started = sys.orig_argv[1 : len(sys.orig_argv) - len(sys.argv[1:])]
    sys.stderr.flush()
    os.execv(sys.executable, [sys.executable, *started, *words])  # noqa: S606 - this program, with other words
